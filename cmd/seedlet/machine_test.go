package main

import (
	"fmt"
	"testing"

	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/world"
)

// An agent that must not run with cgroup v1 does not start there, and says why.
func TestCheckCgroups(t *testing.T) {
	for _, test := range []struct {
		fails, v1 bool
		want      string
	}{
		{false, false, "<nil>"}, {false, true, "<nil>"}, {true, false, "<nil>"},
		{true, true, "failCgroupV1 is true, and the machine has cgroup v1"},
	} {
		c := &kubeletconfig.KubeletConfiguration{FailCgroupV1: &test.fails}
		err := checkCgroups(c, world.Machine{CgroupV1: test.v1})
		if got := fmt.Sprint(err); got != test.want {
			t.Errorf("failCgroupV1 %v, cgroup v1 %v: %q", test.fails, test.v1, got)
		}
	}
}
