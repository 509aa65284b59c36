package main

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// terminal writes the size of its terminal, at the start, whenever it changes and at each empty
// line that it reads. It ends at the first other line.
func terminal(args []string) (int, error) {
	if err := parse(flag.NewFlagSet("terminal", flag.ContinueOnError), args); err != nil {
		return 2, err
	}
	changes := make(chan os.Signal, 1)
	signal.Notify(changes, unix.SIGWINCH)
	lines, read := make(chan string), make(chan error, 1)
	go func() {
		reader := bufio.NewReader(os.Stdin)
		for {
			line, err := reader.ReadString('\n')
			if err != nil {
				read <- err
				return
			}
			lines <- line
		}
	}()
	for {
		size, err := unix.IoctlGetWinsize(int(os.Stdout.Fd()), unix.TIOCGWINSZ)
		if err != nil {
			return 1, err
		}
		fmt.Printf("%d by %d\n", size.Col, size.Row)
		select {
		case <-changes:
		case line := <-lines:
			if line != "\n" {
				return 0, nil
			}
		case err := <-read:
			return 1, err
		}
	}
}
