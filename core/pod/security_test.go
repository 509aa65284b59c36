package pod

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/image"
	"seedlet.dev/core/op"
)

func ref[T any](v T) *T { return &v }

func number64(n int64) *runtimeapi.Int64Value { return &runtimeapi.Int64Value{Value: n} }

// secured is an observed pod with these security contexts of the pod and of its app container.
func secured(pod *v1.PodSecurityContext, container *v1.SecurityContext) *Pod {
	s := spec(v1.RestartPolicyAlways, "", "web")
	s.Spec.SecurityContext, s.Spec.Containers[0].SecurityContext = pod, container
	return facts(s)
}

var (
	unconfined = profileOf(runtimeapi.SecurityProfile_Unconfined)
	byRuntime  = profileOf(runtimeapi.SecurityProfile_RuntimeDefault)
)

func local(ref string) *runtimeapi.SecurityProfile {
	return &runtimeapi.SecurityProfile{
		ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: ref,
	}
}

// securityCase says what differs from a container without any security context.
type securityCase struct {
	name      string
	pod       *v1.PodSecurityContext
	container *v1.SecurityContext
	differ    func(*containerContext)
}

type containerContext = runtimeapi.LinuxContainerSecurityContext

func (c *securityCase) check(t *testing.T) {
	t.Helper()
	want := &containerContext{
		NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
		MaskedPaths:      maskedPaths, ReadonlyPaths: readonlyPaths, Seccomp: unconfined,
		RunAsUser: number64(0),
	}
	c.differ(want)
	p := secured(c.pod, c.container)
	got := p.containerSecurity(p.want("web"), image.User{}, &Node{PodsDir: "/var/lib/kubelet/pods"})
	if !proto.Equal(got, want) {
		t.Errorf("%s:\ngot  %v\nwant %v", c.name, got, want)
	}
}

func TestContainerSecurity(t *testing.T) {
	for _, test := range []securityCase{
		{"none", nil, nil, func(*containerContext) {}},
		{"empty", &v1.PodSecurityContext{}, &v1.SecurityContext{}, func(*containerContext) {}},
		{"the pod's user", &v1.PodSecurityContext{RunAsUser: ref(int64(7)),
			RunAsGroup: ref(int64(8)), RunAsNonRoot: ref(true)}, nil,
			func(w *containerContext) { w.RunAsUser, w.RunAsGroup = number64(7), number64(8) }},
		{"its own user, the pod's group", &v1.PodSecurityContext{RunAsUser: ref(int64(7)),
			RunAsGroup: ref(int64(8))}, &v1.SecurityContext{RunAsUser: ref(int64(0))},
			func(w *containerContext) { w.RunAsUser, w.RunAsGroup = number64(0), number64(8) }},
		{"groups", &v1.PodSecurityContext{FSGroup: ref(int64(1)),
			SupplementalGroups: []int64{2, 3}}, nil,
			func(w *containerContext) { w.SupplementalGroups = []int64{1, 2, 3} }},
		{"strict groups", &v1.PodSecurityContext{
			SupplementalGroupsPolicy: ref(v1.SupplementalGroupsPolicyStrict)}, nil,
			func(w *containerContext) {
				w.SupplementalGroupsPolicy = runtimeapi.SupplementalGroupsPolicy_Strict
			}},
		{"SELinux", &v1.PodSecurityContext{SELinuxOptions: &v1.SELinuxOptions{Level: "pod"}},
			&v1.SecurityContext{SELinuxOptions: &v1.SELinuxOptions{
				User: "u", Role: "r", Type: "t", Level: "l"}},
			func(w *containerContext) {
				w.SelinuxOptions = &runtimeapi.SELinuxOption{
					User: "u", Role: "r", Type: "t", Level: "l"}
			}},
		{"privileged, read-only", nil, &v1.SecurityContext{Privileged: ref(true),
			ReadOnlyRootFilesystem: ref(true), AllowPrivilegeEscalation: ref(true)},
			func(w *containerContext) { w.Privileged, w.ReadonlyRootfs = true, true }},
		{"capabilities", nil, &v1.SecurityContext{Capabilities: &v1.Capabilities{
			Add: []v1.Capability{"NET_ADMIN", "CHOWN"}, Drop: []v1.Capability{"ALL"}}},
			func(w *containerContext) {
				w.Capabilities = &runtimeapi.Capability{
					AddCapabilities:  []string{"NET_ADMIN", "CHOWN"},
					DropCapabilities: []string{"ALL"}}
			}},
		{"all of /proc", nil, &v1.SecurityContext{ProcMount: ref(v1.UnmaskedProcMount)},
			func(w *containerContext) { w.MaskedPaths, w.ReadonlyPaths = nil, nil }},
		{"default /proc", nil, &v1.SecurityContext{ProcMount: ref(v1.DefaultProcMount)},
			func(*containerContext) {}},
		{"no escalation", nil, &v1.SecurityContext{AllowPrivilegeEscalation: ref(false)},
			func(w *containerContext) { w.NoNewPrivs = true }},
	} {
		test.check(t)
	}
}

func TestProfiles(t *testing.T) {
	for _, test := range []securityCase{
		{"the pod's profiles", &v1.PodSecurityContext{
			SeccompProfile:  &v1.SeccompProfile{Type: v1.SeccompProfileTypeRuntimeDefault},
			AppArmorProfile: &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeRuntimeDefault}},
			nil, func(w *containerContext) { w.Seccomp, w.Apparmor = byRuntime, byRuntime }},
		{"its own profiles", &v1.PodSecurityContext{
			SeccompProfile:  &v1.SeccompProfile{Type: v1.SeccompProfileTypeRuntimeDefault},
			AppArmorProfile: &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeRuntimeDefault}},
			&v1.SecurityContext{
				SeccompProfile:  &v1.SeccompProfile{Type: v1.SeccompProfileTypeUnconfined},
				AppArmorProfile: &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeUnconfined}},
			func(w *containerContext) { w.Apparmor = unconfined }},
		{"profiles of the node", nil, &v1.SecurityContext{
			SeccompProfile: &v1.SeccompProfile{Type: v1.SeccompProfileTypeLocalhost,
				LocalhostProfile: ref("web/strict.json")},
			AppArmorProfile: &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeLocalhost,
				LocalhostProfile: ref("strict")}},
			func(w *containerContext) {
				w.Seccomp = local("/var/lib/kubelet/seccomp/web/strict.json")
				w.Apparmor = local("strict")
			}},
	} {
		test.check(t)
	}
}

func TestNoNewPrivs(t *testing.T) {
	admin := &v1.Capabilities{Add: []v1.Capability{"CAP_SYS_ADMIN"}}
	for _, test := range []struct {
		context v1.SecurityContext
		want    bool
	}{
		{v1.SecurityContext{}, false},
		{v1.SecurityContext{AllowPrivilegeEscalation: ref(true)}, false},
		{v1.SecurityContext{AllowPrivilegeEscalation: ref(false)}, true},
		{v1.SecurityContext{AllowPrivilegeEscalation: ref(false), Privileged: ref(false)}, true},
		{v1.SecurityContext{AllowPrivilegeEscalation: ref(false), Privileged: ref(true)}, false},
		{v1.SecurityContext{AllowPrivilegeEscalation: ref(false), Capabilities: admin}, false},
	} {
		if got := noNewPrivs(&test.context); got != test.want {
			t.Errorf("%v: %v, want %v", test.context, got, test.want)
		}
	}
}

func TestSandboxSecurity(t *testing.T) {
	p := secured(&v1.PodSecurityContext{
		RunAsUser: ref(int64(7)), RunAsGroup: ref(int64(8)), FSGroup: ref(int64(1)),
		SupplementalGroups:       []int64{2},
		SupplementalGroupsPolicy: ref(v1.SupplementalGroupsPolicyStrict),
		SELinuxOptions:           &v1.SELinuxOptions{Level: "l"},
		SeccompProfile:           &v1.SeccompProfile{Type: v1.SeccompProfileTypeUnconfined},
		Sysctls: []v1.Sysctl{
			{Name: "net.ipv4.tcp_syncookies", Value: "1"},
			{Name: "net/ipv4/conf/eth0.100/rp_filter", Value: "0"},
		},
	}, &v1.SecurityContext{Privileged: ref(true)})
	want := &runtimeapi.LinuxPodSandboxConfig{
		SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
			NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
			RunAsUser:        number64(7), RunAsGroup: number64(8),
			SupplementalGroups:       []int64{1, 2},
			SupplementalGroupsPolicy: runtimeapi.SupplementalGroupsPolicy_Strict,
			SelinuxOptions:           &runtimeapi.SELinuxOption{Level: "l"},
			Privileged:               true, Seccomp: byRuntime,
		},
		Sysctls: map[string]string{
			"net.ipv4.tcp_syncookies": "1", "net.ipv4.conf.eth0/100.rp_filter": "0",
		},
		Overhead:  &runtimeapi.LinuxContainerResources{},
		Resources: &runtimeapi.LinuxContainerResources{CpuPeriod: 100_000, CpuShares: 2},
	}
	if got := p.sandboxConfig(&Node{}, 0).Linux; !proto.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	p.Spec.Spec.SecurityContext.RunAsUser = nil
	if got := p.sandboxSecurity(); got.RunAsGroup != nil {
		t.Error("a sandbox has a group without a user, which the runtime must refuse")
	}
	p = secured(nil, nil)
	if got := p.sandboxSecurity(); got.Privileged || !proto.Equal(got.Seccomp, byRuntime) {
		t.Errorf("without any security context: %v", got)
	}
}

// A container that is to run as root and must not is never made; the status says why, until the
// spec is put right.
func TestRootIsRefused(t *testing.T) {
	p := secured(&v1.PodSecurityContext{RunAsNonRoot: ref(true)},
		&v1.SecurityContext{RunAsUser: ref(int64(0))})
	want := p.want("web")
	env := &Env{Node: &Node{}, Out: &op.Out{}}
	for range 2 { // however often it is tried
		if p.create(want, env) || p.Op != 0 || len(p.Problems) != 1 {
			t.Fatalf("operation %d, problems %v", p.Op, p.Problems)
		}
	}
	if n := len(env.Out.Take()); n != 1 {
		t.Errorf("told %d times", n)
	}
	waiting := p.containerStatus(want, App, "r").State.Waiting
	const message = `container's runAsUser breaks non-root policy ` +
		`(pod: "p_default(u)", container: web)`
	if waiting.Reason != "CreateContainerConfigError" || waiting.Message != message {
		t.Errorf("%s: %s", waiting.Reason, waiting.Message)
	}
	want.SecurityContext.RunAsUser = ref(int64(7))
	if p.misconfigured(want, &Env{Node: &Node{}}) || len(p.Problems) != 0 {
		t.Errorf("user 7 is refused, or problems remain: %v", p.Problems)
	}
	want.SecurityContext = &v1.SecurityContext{
		RunAsUser: ref(int64(0)), RunAsNonRoot: ref(false),
	}
	if p.misconfigured(want, &Env{Node: &Node{}}) {
		t.Error("root is refused to a container that may run as root, unlike the rest of its pod")
	}
}

func TestUnsupportedSecurity(t *testing.T) {
	const own = "spec.containers[0].securityContext."
	user, yes := ref(int64(7)), ref(true)
	for _, test := range []struct {
		pod       v1.PodSecurityContext
		container v1.SecurityContext
		want      []string
	}{
		{v1.PodSecurityContext{RunAsUser: user, RunAsGroup: user, RunAsNonRoot: yes, FSGroup: user},
			v1.SecurityContext{Privileged: yes, ReadOnlyRootFilesystem: yes}, nil},
		{v1.PodSecurityContext{RunAsNonRoot: yes, RunAsGroup: user}, v1.SecurityContext{}, nil},
		{v1.PodSecurityContext{WindowsOptions: &v1.WindowsSecurityContextOptions{}},
			v1.SecurityContext{WindowsOptions: &v1.WindowsSecurityContextOptions{}},
			[]string{"spec.securityContext.windowsOptions", own + "windowsOptions"}},
	} {
		got := Unsupported(secured(&test.pod, &test.container).Spec, false)
		if !slices.Equal(got, test.want) {
			t.Errorf("%v, %v: %s, want %s", test.pod, test.container,
				strings.Join(got, "; "), strings.Join(test.want, "; "))
		}
	}
}
