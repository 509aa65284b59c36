package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func exitAfter(args []string) (int, error) {
	flags := flag.NewFlagSet("exit", flag.ContinueOnError)
	code := flags.Int("code", 0, "the exit code")
	after := flags.Duration("after", 0, "how long to run")
	when := flags.String("when", "", "a file to wait for first")
	message := flags.String("message", "", "why, for the termination message")
	path := flags.String("message-path", "/dev/termination-log", "the file for that")
	say := flags.String("say", "", "why, for the log")
	if err := parse(flags, args); err != nil {
		return 2, err
	}
	for *when != "" {
		if _, err := os.Stat(*when); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	fmt.Printf("exiting with %d after %v\n", *code, *after)
	select {
	case <-time.After(*after):
	case <-stopRequested():
		return 128 + int(unix.SIGTERM), nil
	}
	if *message != "" {
		if err := os.WriteFile(*path, []byte(*message), 0o644); err != nil {
			return 1, err
		}
	}
	if *say != "" {
		fmt.Println(*say)
	}
	return *code, nil
}

func sleep(args []string) (int, error) {
	flags := flag.NewFlagSet("sleep", flag.ContinueOnError)
	ignore := flags.Bool("ignore-term", false, "go on when asked to stop")
	takes := flags.Duration("stop-takes", 0, "how long stopping takes")
	code := flags.Int("code", 0, "the exit code")
	if err := parse(flags, args); err != nil {
		return 2, err
	}
	stop := stopRequested()
	fmt.Println("sleeping")
	for signal := range stop {
		fmt.Println("asked to stop:", signal)
		if !*ignore {
			break
		}
	}
	time.Sleep(*takes)
	return *code, nil
}

// talk writes numbered lines, so that a missing line is noticed.
func talk(args []string) (int, error) {
	flags := flag.NewFlagSet("talk", flag.ContinueOnError)
	lines := flags.Int("lines", 1000, "how many lines to write")
	bytes := flags.Int("bytes", 100, "how long a line is")
	every := flags.Duration("every", 0, "how long to wait after a hundred lines")
	exits := flags.Bool("exit", false, "exit after the last line")
	if err := parse(flags, args); err != nil {
		return 2, err
	}
	stop := stopRequested()
	out := bufio.NewWriter(os.Stdout)
	for i := range *lines {
		line := fmt.Sprintf("line %d ", i)
		fmt.Fprintln(out, line+strings.Repeat(".", max(0, *bytes-len(line)-1)))
		if i%100 < 99 {
			continue
		}
		if err := out.Flush(); err != nil {
			return 1, err
		}
		time.Sleep(*every)
	}
	if err := out.Flush(); err != nil {
		return 1, err
	}
	if !*exits {
		<-stop
	}
	return 0, nil
}

// holdConnection keeps a connection open as long as the process lives. The kernel closes it even if
// the process is killed, so the other end sees exactly when the container runs.
func holdConnection(args []string) (int, error) {
	flags := flag.NewFlagSet("hold", flag.ContinueOnError)
	code := flags.Int("code", 0, "the exit code")
	after := flags.Duration("after", 0, "how long to run; zero is until TERM")
	takes := flags.Duration("stop-takes", 0, "how long stopping takes")
	port := flags.Int("http", 0, "the port on which checks are answered; zero is none")
	if err := flags.Parse(args); err != nil {
		return 2, err
	}
	if flags.NArg() != 2 {
		return 2, errors.New("want ADDRESS and NAME")
	}
	stop := stopRequested()
	conn, err := net.DialTimeout("tcp", flags.Arg(0), 10*time.Second)
	if err != nil {
		return 1, err
	}
	if _, err := fmt.Fprintln(conn, flags.Arg(1), attempt()); err != nil {
		return 1, err
	}
	var timeUp <-chan time.Time // nil, which never fires, without a duration
	if *after > 0 {
		timeUp = time.After(*after)
	}
	failed := make(chan error, 1)
	if *port != 0 {
		if err := becomeHealthy(); err != nil {
			return 1, err
		}
		go func() { failed <- serveHTTP(*port) }()
	}
	select {
	case <-timeUp:
	case err := <-failed:
		return 1, err
	case <-stop:
		time.Sleep(*takes)
	}
	return *code, nil
}

// attempt returns the number of this run of the container. The agent does not pass it to the
// container, but the file of its termination message on the node has the number as its name, which
// the list of mounts shows.
func attempt() string {
	data, _ := os.ReadFile("/proc/self/mountinfo") // empty if it cannot be read
	for _, line := range strings.Split(string(data), "\n") {
		// A line is like "36 35 98:0 /on/its/disk /mounted/at rw …".
		fields := strings.Fields(line)
		if len(fields) > 4 && fields[4] == "/dev/termination-log" {
			return path.Base(fields[3])
		}
	}
	return "?"
}
