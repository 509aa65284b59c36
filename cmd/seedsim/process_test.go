package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The page is written also if the reader of the lines ends before them, as head does.
func TestPageWithoutReader(t *testing.T) {
	page := filepath.Join(t.TempDir(), "run.html")
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	reader.Close()
	command := exec.Command(os.Args[0], "replay", "steady", "--log", "--html", page)
	command.Env = append(os.Environ(), commandVariable+"=1")
	command.Stdout = writer
	err = command.Run()
	writer.Close()
	if info, statErr := os.Stat(page); statErr != nil || info.Size() == 0 {
		t.Errorf("no page: %v, %v", err, statErr)
	}
}

// A seed means the same in every process: neither the time zone, nor the number of threads, nor the
// garbage collector has a part in it.
func TestEveryProcessHasTheSameRuns(t *testing.T) {
	var first string
	for _, env := range [][]string{
		{"TZ=UTC"},
		{"TZ=America/St_Johns", "GOMAXPROCS=1", "GOGC=5"},
		{"TZ=Asia/Kathmandu", "GOMAXPROCS=7", "GOGC=off"},
	} {
		var all string
		for _, scenario := range []string{"mix", "pod-options", "node-churn"} {
			for _, seed := range []string{"1", "2"} {
				command := exec.Command(os.Args[0], "replay", scenario, "--seed", seed, "--log")
				command.Env = append(os.Environ(), append(env, commandVariable+"=1")...)
				output, err := command.CombinedOutput()
				if err != nil {
					t.Fatalf("%s seed %s with %v: %v\n%s", scenario, seed, env, err, output)
				}
				all += string(output)
			}
		}
		if first == "" {
			first = all
		}
		if all != first {
			t.Errorf("with %v the output differs from that with TZ=UTC", env)
		}
	}
}
