package runtime

import (
	"slices"
	"strings"
	"time"

	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// Instance is a process that is about to start. The plan chooses its script by these fields.
type Instance struct {
	PodUID, PodNamespace, PodName string

	Container string
	Attempt   uint32 // metadata.attempt, the agent's count
	Starts    int    // number of true starts of this container in this pod UID so far
}

// Script is the behaviour of a process. The zero Script runs until it is stopped, is killed by TERM
// at once, and replies to every request with success.
type Script struct {
	RunsFor  time.Duration // until it exits by itself; zero: forever
	ExitCode int32         // of an exit by itself
	OOM      bool          // the exit by itself is an OOM kill with code 137

	LogBytesPerSecond int64  // written to the log each second
	Message           string // termination message of an exit by itself, unless OOM is set

	Writes []FileWrite // to files
	Loads  []Load      // what it uses; none: an amount of its own

	StopDelay    time.Duration // from TERM to the exit
	IgnoresTerm  bool          // only KILL ends the process
	HandlesTerm  bool          // after TERM it exits with StopExitCode instead of 143
	StopExitCode int32

	Replies []ReplyRule // the first rule that matches applies; default: success at once
	Ports   []int32     // on which it listens; nil: all ports
}

// ReplyRule is a rule for the replies of a process to probes and hooks during a period.
type ReplyRule struct {
	Match string        // substring of the request (truth.Fact.Request); empty: any request
	From  time.Duration // start of the period, since the start of the process
	For   time.Duration // length of the period; zero: until the process ends
	Reply truth.Reply   // ReplyNone: no reply
	Delay time.Duration // of the reply; zero: one millisecond
}

// replyTo returns the reply to a request that arrives at the given age of the process, and its
// delay.
func (s *Script) replyTo(request string, age time.Duration) (truth.Reply, time.Duration) {
	for i := range s.Replies {
		a := &s.Replies[i]
		if strings.Contains(request, a.Match) && age >= a.From &&
			(a.For == 0 || age < a.From+a.For) {
			return a.Reply, max(a.Delay, time.Millisecond)
		}
	}
	return truth.ReplySuccess, time.Millisecond
}

func (s *Script) listensOn(port int32) bool {
	return s.Ports == nil || slices.Contains(s.Ports, port)
}

// Image is the plan for an image. The zero Image is present.
type Image struct {
	Absent       bool          // not present when it is first mentioned
	PullDuration time.Duration // duration of this pull; zero: drawn
	PullError    *world.Error  // error at the end of this pull; nil: success
	User         string        // of the image's configuration, as in "1000:2000" or "www"; empty: root
	PulledBy     []string      // the users of the registry that may pull it; empty: everybody
	Bytes        int64         // its size; zero: 1 MiB
	Pinned       bool          // the runtime asks that it is kept
}

// Exit codes that the kernel or containerd sets.
const (
	exitCodeTerm       = 128 + 15
	exitCodeKill       = 128 + 9
	exitCodeStartError = 128 // of containerd, for a container that could not be started
	exitCodeUnknown    = 255 // of containerd, for a process that ended while containerd was down
)
