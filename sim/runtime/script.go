package runtime

import (
	"slices"
	"strings"
	"time"

	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// Instance is one process that is about to run: which script it follows is up to the plan.
type Instance struct {
	PodUID, PodNamespace, PodName string

	Container string
	Attempt   uint32 // as the agent counts: the container's metadata.attempt
	Starts    int    // as the world counts: starts of this container in this pod UID so far
}

// Script is what a process does. The zero Script runs until it is stopped and reacts to TERM at
// once, dying of it. Whatever it is asked, it answers well.
type Script struct {
	Runs     time.Duration // until it exits by itself; zero: never
	ExitCode int32         // when it exits by itself
	OOM      bool          // when it exits by itself, it is the kernel's doing: code 137

	LogBytes int64  // that it writes into its log, each second
	Message  string // that it leaves when it exits by itself, and is not out of memory

	Writes []FileWrite // into what is mounted

	StopTakes    time.Duration // from TERM to the exit
	IgnoresTerm  bool          // only KILL ends it
	HandlesTerm  bool          // after TERM it exits with StopExitCode, not of the signal (143)
	StopExitCode int32

	Answers []Answer // the first that fits a request counts; none: it is answered well, at once
	Ports   []int32  // that it listens on; nil: on every one
}

// Answer is how a process answers probes and hooks for a while.
type Answer struct {
	Match string        // a part of the request's text, see truth.Fact.Request; empty: fits all
	From  time.Duration // since the start of the process
	For   time.Duration // zero: until its end
	Reply truth.Reply   // ReplyNone hangs
	Takes time.Duration // until the reply; zero: a millisecond
}

// answer is how the process answers a request that comes at this age of it.
func (s *Script) answer(request string, age time.Duration) (truth.Reply, time.Duration) {
	for i := range s.Answers {
		a := &s.Answers[i]
		if strings.Contains(request, a.Match) && age >= a.From &&
			(a.For == 0 || age < a.From+a.For) {
			return a.Reply, max(a.Takes, time.Millisecond)
		}
	}
	return truth.ReplyGood, time.Millisecond
}

func (s *Script) listens(port int32) bool {
	return s.Ports == nil || slices.Contains(s.Ports, port)
}

// Image is what the plan says about an image. The zero Image is present.
type Image struct {
	Absent    bool          // when it is first mentioned
	PullTakes time.Duration // of this pull; zero: drawn
	PullError *world.Error  // of this pull, at its end; nil: it succeeds
	User      string        // as its configuration says, "1000", "1000:2000", "www"; empty: root
}

// Exit codes that are not the process's own.
const (
	exitOnTerm  = 128 + 15
	exitOnKill  = 128 + 9
	exitNoStart = 128 // containerd's for a container that could not be started
	exitUnknown = 255 // containerd's for a process that was gone when it looked
)
