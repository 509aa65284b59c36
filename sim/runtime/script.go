package runtime

import (
	"time"

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
// once, dying of it.
type Script struct {
	Runs     time.Duration // until it exits by itself; zero: never
	ExitCode int32         // when it exits by itself
	OOM      bool          // when it exits by itself, it is the kernel's doing: code 137

	LogBytes int64  // that it writes into its log, each second
	Message  string // that it leaves when it exits by itself, and is not out of memory

	StopTakes    time.Duration // from TERM to the exit
	IgnoresTerm  bool          // only KILL ends it
	HandlesTerm  bool          // after TERM it exits with StopExitCode, not of the signal (143)
	StopExitCode int32
}

// Image is what the plan says about an image. The zero Image is present.
type Image struct {
	Absent    bool          // when it is first mentioned
	PullTakes time.Duration // of this pull; zero: drawn
	PullError *world.Error  // of this pull, at its end; nil: it succeeds
}

// Exit codes that are not the process's own.
const (
	exitOnTerm  = 128 + 15
	exitOnKill  = 128 + 9
	exitNoStart = 128 // containerd's for a container that could not be started
	exitUnknown = 255 // containerd's for a process that was gone when it looked
)
