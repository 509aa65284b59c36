// Sample is the workload of the project's own images: one static binary that behaves as its
// subcommand says, so that tests and the playground need no image from elsewhere.
//
//	sample pause                                 reap children until TERM (also the sandbox image)
//	sample web   [--port N] [--text S]           serve S over HTTP until TERM
//	sample exit  [--code N] [--after D]          run for D, then exit with N
//	sample sleep [--ignore-term] [--stop-takes D] [--code N]   run until TERM
//	sample write PATH TEXT                       write TEXT to PATH and exit
//
// Every subcommand that waits ends on TERM or INT, also as process 1 of a container, where the
// kernel delivers only signals that have a handler. Bad arguments exit with 2.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// behaviours are the subcommands. Each takes its own arguments and returns the exit code.
var behaviours = map[string]func(args []string) (int, error){
	"pause": pause,
	"web":   web,
	"exit":  exitAfter,
	"sleep": sleep,
	"write": write,
}

func main() {
	if len(os.Args) < 2 || behaviours[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "sample: the first argument must be pause, web, exit, sleep or write")
		os.Exit(2)
	}
	code, err := behaviours[os.Args[1]](os.Args[2:])
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

// asked is a channel that yields when the container is asked to stop.
func asked() <-chan os.Signal {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT)
	return signals
}

func pause(args []string) (int, error) {
	if err := parse(flag.NewFlagSet("pause", flag.ContinueOnError), args); err != nil {
		return 2, err
	}
	stop := asked()
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

// reap collects every child that has ended. Signals coalesce, so one of them may stand for many.
func reap() {
	for {
		pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
		if pid <= 0 && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

func web(args []string) (int, error) {
	flags := flag.NewFlagSet("web", flag.ContinueOnError)
	port := flags.Int("port", 8080, "the TCP port")
	text := flags.String("text", "hello from a seedlet pod", "the page")
	if err := parse(flags, args); err != nil {
		return 2, err
	}
	server := &http.Server{
		Addr:              ":" + strconv.Itoa(*port),
		ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Printf("%s %s\n", r.Method, r.URL.Path)
			fmt.Fprintln(w, *text)
		}),
	}
	stop := asked()
	failed := make(chan error, 1)
	go func() { failed <- server.ListenAndServe() }()
	fmt.Printf("serving on port %d\n", *port)
	select {
	case err := <-failed:
		return 1, err
	case <-stop:
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		return 0, server.Shutdown(ctx)
	}
}

func exitAfter(args []string) (int, error) {
	flags := flag.NewFlagSet("exit", flag.ContinueOnError)
	code := flags.Int("code", 0, "the exit code")
	after := flags.Duration("after", 0, "how long to run")
	if err := parse(flags, args); err != nil {
		return 2, err
	}
	fmt.Printf("exiting with %d after %v\n", *code, *after)
	select {
	case <-time.After(*after):
		return *code, nil
	case <-asked():
		return 128 + int(unix.SIGTERM), nil
	}
}

func sleep(args []string) (int, error) {
	flags := flag.NewFlagSet("sleep", flag.ContinueOnError)
	ignore := flags.Bool("ignore-term", false, "go on when asked to stop")
	takes := flags.Duration("stop-takes", 0, "how long stopping takes")
	code := flags.Int("code", 0, "the exit code")
	if err := parse(flags, args); err != nil {
		return 2, err
	}
	stop := asked()
	for range stop {
		fmt.Println("asked to stop")
		if !*ignore {
			break
		}
	}
	time.Sleep(*takes)
	return *code, nil
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
