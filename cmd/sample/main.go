// Sample is the workload of the project's own images: one static binary whose subcommands behave in
// different ways, so that tests and the playground need no other image.
//
//	sample pause        reap children until TERM (also the sandbox image)
//	sample web          serve a page over HTTP until TERM
//	sample health       answer HTTP, TCP and gRPC checks until TERM; healthy while a file exists
//	sample check        exit 0 if the same file exists
//	sample exit         run for a while, write a message, exit with a code
//	sample sleep        run until TERM, or past it
//	sample talk         write many lines to the log, then sleep
//	sample report       write the environment of the process as JSON
//	sample hold         keep a connection to ADDRESS, with NAME and the number of this attempt
//	sample nest PATH    make directories within each other below PATH, then sleep
//	sample burn         use CPU for a share of the time and hold memory, until TERM
//	sample echo         write what it reads
//	sample terminal     write the size of its terminal whenever it changes
//	sample tar          write or unpack an archive; also by the name of tar
//	sample say TEXT     write TEXT to the log of the container, from a command run in it
//	sample write PATH TEXT    write TEXT to PATH and exit
//	sample remove PATH        remove PATH and exit
//
// The flags of each are in its file.
//
// Every subcommand that waits ends on TERM or INT, also as process 1 of a container, where the
// kernel delivers only signals that have a handler. Bad arguments exit with 2.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// subcommands are the functions of the subcommands. Each receives its arguments and returns the
// exit code.
var subcommands = map[string]func(args []string) (int, error){
	"pause":  pause,
	"web":    web,
	"health": health,
	"check":  check,
	"exit":   exitAfter,
	"sleep":  sleep,
	"talk":   talk,
	"report": report,
	"hold":   holdConnection,
	"echo":   echo,
	"burn":   burn,
	"nest":   nest,
	"tar":    archive,
	"say":    say,
	"write":  write,
	"remove": remove,

	"terminal": terminal,
}

func main() {
	if filepath.Base(os.Args[0]) == "tar" {
		os.Args = append([]string{"sample", "tar"}, os.Args[1:]...)
	}
	if len(os.Args) < 2 || subcommands[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "sample: the first argument must be one of",
			strings.Join(slices.Sorted(maps.Keys(subcommands)), ", "))
		os.Exit(2)
	}
	code, err := subcommands[os.Args[1]](os.Args[2:])
	if err != nil {
		fmt.Fprintf(os.Stderr, "sample %s: %v\n", os.Args[1], err)
	}
	os.Exit(code)
}

// parse reads the flags of a subcommand that takes no other arguments.
func parse(flags *flag.FlagSet, args []string) error {
	flags.SetOutput(io.Discard)
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	return nil
}

// stopRequested returns a channel that receives when the container is stopped.
func stopRequested() <-chan os.Signal {
	signals := make(chan os.Signal, 16) // subcommands that ignore TERM count signals
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT, unix.SIGQUIT, unix.SIGUSR1)
	return signals
}

func pause(args []string) (int, error) {
	if err := parse(flag.NewFlagSet("pause", flag.ContinueOnError), args); err != nil {
		return 2, err
	}
	stop := stopRequested()
	children := make(chan os.Signal, 1)
	signal.Notify(children, unix.SIGCHLD)
	for {
		select {
		case <-stop:
			return 0, nil
		case <-children:
			reap()
		}
	}
}

// reap waits for every child that has ended. Signals coalesce, so one SIGCHLD may stand for many.
func reap() {
	for {
		pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
		if pid <= 0 && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

func write(args []string) (int, error) {
	if len(args) != 2 {
		return 2, errors.New("want PATH and TEXT")
	}
	if err := os.WriteFile(args[0], []byte(args[1]+"\n"), 0o644); err != nil {
		return 1, err
	}
	return 0, nil
}

func remove(args []string) (int, error) {
	if len(args) != 1 {
		return 2, errors.New("want PATH")
	}
	if err := os.Remove(args[0]); err != nil {
		return 1, err
	}
	return 0, nil
}

// say writes to the output of the container's first process, so that hooks appear in the log with
// the runtime's timestamp.
func say(args []string) (int, error) {
	if len(args) != 1 {
		return 2, errors.New("want TEXT")
	}
	log, err := os.OpenFile("/proc/1/fd/1", os.O_WRONLY, 0)
	if err != nil {
		return 1, err
	}
	if _, err := fmt.Fprintln(log, args[0]); err != nil {
		return 1, err
	}
	return 0, log.Close()
}
