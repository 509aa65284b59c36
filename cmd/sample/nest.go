package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
)

// nest makes directories within each other. Their names are one byte long, and their path soon
// exceeds what a request to the kernel can name.
func nest(args []string) (int, error) {
	flags := flag.NewFlagSet("nest", flag.ContinueOnError)
	depth := flags.Int("depth", 5000, "how many directories")
	if err := flags.Parse(args); err != nil {
		return 2, err
	}
	if flags.NArg() != 1 {
		return 2, errors.New("want PATH")
	}
	stop := stopRequested()
	if err := os.Chdir(flags.Arg(0)); err != nil {
		return 1, err
	}
	for range *depth {
		if err := errors.Join(os.Mkdir("d", 0o755), os.Chdir("d")); err != nil {
			return 1, err
		}
	}
	fmt.Println("sleeping")
	<-stop
	return 0, nil
}
