package admission

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestMissingFeatures(t *testing.T) {
	const feature = "RestartAllContainersOnContainerExits"
	rule := []v1.ContainerRestartRule{{Action: v1.ContainerRestartRuleActionRestartAllContainers}}
	restarting := modified(podRequesting("p"), func(p *v1.Pod) {
		p.Spec.Containers[0].RestartPolicyRules = rule
	})
	remapped := modified(podRequesting("p"), func(p *v1.Pod) {
		p.Spec.HostNetwork, p.Spec.HostUsers = true, new(bool)
	})
	const text = "Pod requires node features that are not available: "
	for _, c := range []struct {
		name     string
		pod      *v1.Pod
		declared []string
		want     string
	}{
		{"none is needed", podRequesting("p"), nil, ""},
		{"declared", restarting, []string{"AnotherFeature", feature}, ""},
		{"not declared", restarting, []string{"AnotherFeature"}, text + feature},
		{"not built", remapped, []string{feature}, text + "UserNamespacesHostNetworkSupport"},
	} {
		if got := MissingFeatures(c.pod, c.declared); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestStrictGroups(t *testing.T) {
	check := Check{Pod: podRequesting("p"), StrictGroups: true}
	policy := v1.SupplementalGroupsPolicyStrict
	check.Pod.Spec.SecurityContext = &v1.PodSecurityContext{SupplementalGroupsPolicy: &policy}
	if got := check.Failures(); len(got) > 0 {
		t.Errorf("rejected for %v", got)
	}
	check.StrictGroups = false
	const message = "SupplementalGroupsPolicy=Strict is not supported in this node"
	if got := check.Failures(); len(got) != 1 || got[0].Message != message {
		t.Errorf("rejected for %v", got)
	}
	policy = v1.SupplementalGroupsPolicyMerge
	if got := check.Failures(); len(got) > 0 {
		t.Errorf("rejected for %v", got)
	}
}
