package host

import (
	"errors"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
)

func TestSubordinateIDs(t *testing.T) {
	exists := func(name string) (*user.User, error) { return &user.User{Username: name}, nil }
	for _, test := range []struct {
		name          string
		lookUp        func(string) (*user.User, error)
		script        string // empty: there is no such tool
		first, length uint32
		problem       string
	}{
		{"a range", exists, `echo "0: kubelet 65536 2147483648"`, 65536, 2147483648, ""},
		{"no tool", exists, "", 0, 0,
			"the user kubelet exists, and getsubids-none, which"},
		{"no user", func(name string) (*user.User, error) {
			return nil, user.UnknownUserError(name)
		}, "exit 1", 0, 0, ""},
		{"users unknown", func(string) (*user.User, error) {
			return nil, errors.New("input/output error")
		}, "exit 1", 0, 0, "looking up the user kubelet: input/output error"},
		{"no answer", exists, "echo 'Error fetching ranges' >&2; exit 1", 0, 0,
			"reading the subordinate user IDs of kubelet: "},
		{"no answer for groups", exists, `[ "$1" != -g ] && echo "0: kubelet 65536 65536"`, 0, 0,
			"reading the subordinate group IDs of kubelet: "},
		{"others for groups", exists, `echo "0: kubelet 65536 $#65536"`, 0, 0, "must be the same"},
		{"two ranges", exists, `echo "0: kubelet 65536 65536"; echo "1: kubelet 1 2"`, 0, 0,
			"must be one range"},
		{"an empty range", exists, "echo 0: kubelet 65536 0", 0, 0, "has none"},
		{"nothing", exists, "true", 0, 0, "must be one range"},
		{"no numbers", exists, "echo 0: kubelet a b", 0, 0, `parsing "a"`},
		{"too large", exists, "echo 0: kubelet 1 4294967296", 0, 0, "value out of range"},
	} {
		t.Run(test.name, func(t *testing.T) {
			tool := filepath.Join(t.TempDir(), "getsubids")
			t.Setenv("PATH", filepath.Dir(tool)+":"+os.Getenv("PATH"))
			name := "getsubids-none"
			if test.script != "" {
				name = "getsubids"
				err := os.WriteFile(tool, []byte("#!/bin/sh\n"+test.script+"\n"), 0o700)
				if err != nil {
					t.Fatal(err)
				}
			}
			first, length, err := subordinateIDs(t.Context(), test.lookUp, name)
			if first != test.first || length != test.length {
				t.Errorf("%d IDs from %d on", length, first)
			}
			if (err == nil) != (test.problem == "") ||
				err != nil && !strings.Contains(err.Error(), test.problem) {
				t.Errorf("error %v, want %q", err, test.problem)
			}
		})
	}
}
