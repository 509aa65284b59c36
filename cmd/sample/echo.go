package main

import (
	"flag"
	"io"
	"os"
)

// echo copies its input to its output.
func echo(args []string) (int, error) {
	if err := parse(flag.NewFlagSet("echo", flag.ContinueOnError), args); err != nil {
		return 2, err
	}
	if _, err := io.Copy(os.Stdout, os.Stdin); err != nil {
		return 1, err
	}
	return 0, nil
}
