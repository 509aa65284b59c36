package main

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// terminal writes the size of its terminal, at the start and whenever it changes, until it reads a
// line.
func terminal(args []string) (int, error) {
	if err := parse(flag.NewFlagSet("terminal", flag.ContinueOnError), args); err != nil {
		return 2, err
	}
	changes := make(chan os.Signal, 1)
	signal.Notify(changes, unix.SIGWINCH)
	read := make(chan error, 1)
	go func() {
		_, err := bufio.NewReader(os.Stdin).ReadString('\n')
		read <- err
	}()
	for {
		size, err := unix.IoctlGetWinsize(int(os.Stdout.Fd()), unix.TIOCGWINSZ)
		if err != nil {
			return 1, err
		}
		fmt.Printf("%d by %d\n", size.Col, size.Row)
		select {
		case <-changes:
		case err := <-read:
			if err != nil {
				return 1, err
			}
			return 0, nil
		}
	}
}
