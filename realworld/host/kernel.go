package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// kernelSettings are the settings of the kernel that a node needs, and their values. They are the
// kubelet's (setupKernelTunables in pkg/kubelet/cm): memory is overcommitted, since limits of pods
// may exceed it; a lack of memory ends processes and not the machine; a kernel in an unknown state
// restarts; and containers do not use up the keys of root.
var kernelSettings = []struct {
	name  string
	value int64
}{
	{"vm/overcommit_memory", 1},
	{"vm/panic_on_oom", 0},
	{"kernel/panic", 10},
	{"kernel/panic_on_oops", 1},
	{"kernel/keys/root_maxkeys", 1_000_000},
	{"kernel/keys/root_maxbytes", 25_000_000},
}

// SetKernelSettings sets the kernel's settings below root, which is "/proc/sys" except in tests. If
// they are protected, none is changed, and each with another value is an error
// (protectKernelDefaults). Changed is called for each setting that was changed. The error names all
// settings that are not as they must be: the node must not run pods then.
func SetKernelSettings(root string, protect bool, changed func(name string, from, to int64)) error {
	var problems []error
	for _, s := range kernelSettings {
		path, name := filepath.Join(root, s.name), strings.ReplaceAll(s.name, "/", ".")
		data, err := os.ReadFile(path)
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: reading: %w", name, err))
			continue
		}
		is, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
		switch {
		case err != nil:
			problems = append(problems, fmt.Errorf("%s: %q is no number", name, data))
		case is == s.value:
		case protect:
			problems = append(problems, fmt.Errorf("%s: is %d, must be %d, and protectKernelDefaults "+
				"forbids to change it", name, is, s.value))
		default:
			if err := writeFile(filepath.Dir(path), filepath.Base(path), fmt.Sprint(s.value)); err != nil {
				problems = append(problems, fmt.Errorf("%s: is %d, must be %d: %w", name, is, s.value, err))
				continue
			}
			changed(name, is, s.value)
		}
	}
	if len(problems) > 0 {
		return fmt.Errorf("settings of the kernel: %w", errors.Join(problems...))
	}
	return nil
}
