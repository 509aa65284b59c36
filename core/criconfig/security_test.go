package criconfig

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/image"
	"seedlet.dev/core/volume"
)

func number64(n int64) *runtimeapi.Int64Value { return &runtimeapi.Int64Value{Value: n} }

// secured returns a pod with these security contexts of the pod and of its app container.
func secured(pod *v1.PodSecurityContext, container *v1.SecurityContext) *Pod {
	p := newPod()
	p.Node.PodsDir = "/var/lib/kubelet/pods"
	p.Spec.Spec.SecurityContext, p.web().SecurityContext = pod, container
	return p
}

var (
	unconfined     = newProfile(runtimeapi.SecurityProfile_Unconfined)
	runtimeDefault = newProfile(runtimeapi.SecurityProfile_RuntimeDefault)
)

func local(ref string) *runtimeapi.SecurityProfile {
	return &runtimeapi.SecurityProfile{
		ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: ref,
	}
}

// securityCase is the difference from a container without any security context.
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
		MaskedPaths:      (&Node{}).maskedPaths(), ReadonlyPaths: readonlyPaths, Seccomp: unconfined,
		RunAsUser: number64(0),
	}
	c.differ(want)
	p := secured(c.pod, c.container)
	got := p.containerSecurity(p.web(), image.User{})
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
		{"unmasked /proc", nil, &v1.SecurityContext{ProcMount: ref(v1.UnmaskedProcMount)},
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
			nil, func(w *containerContext) { w.Seccomp, w.Apparmor = runtimeDefault, runtimeDefault }},
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

// With seccompDefault a container has the runtime's profile, unless it or its pod names another.
func TestSeccompDefault(t *testing.T) {
	own := &v1.SeccompProfile{Type: v1.SeccompProfileTypeUnconfined}
	for _, test := range []struct {
		byDefault bool
		profile   *v1.SeccompProfile
		want      *runtimeapi.SecurityProfile
	}{
		{false, nil, unconfined}, {true, nil, runtimeDefault}, {true, own, unconfined},
	} {
		got := seccompProfile(test.profile, &Node{SeccompDefault: test.byDefault})
		if !proto.Equal(got, test.want) {
			t.Errorf("by default %v, profile %v: %v, want %v", test.byDefault, test.profile, got, test.want)
		}
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
		if got := noNewPrivileges(&test.context); got != test.want {
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
			Privileged:               true, Seccomp: runtimeDefault,
		},
		Sysctls: map[string]string{
			"net.ipv4.tcp_syncookies": "1", "net.ipv4.conf.eth0/100.rp_filter": "0",
		},
		Overhead:  &runtimeapi.LinuxContainerResources{},
		Resources: &runtimeapi.LinuxContainerResources{CpuPeriod: 100_000, CpuShares: 2},
	}
	if got := p.SandboxConfig(0, "").Linux; !proto.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	p.Spec.Spec.SecurityContext.RunAsUser = nil
	if got := p.sandboxSecurity(); got.RunAsGroup != nil {
		t.Error("the sandbox has a group without a user, which a runtime must refuse")
	}
	p = secured(nil, nil)
	if got := p.sandboxSecurity(); got.Privileged || !proto.Equal(got.Seccomp, runtimeDefault) {
		t.Errorf("without any security context: %v", got)
	}
}

// A container is in the groups that volumes of the pod name, and in each one once.
func TestGroupsOfVolumes(t *testing.T) {
	p := secured(&v1.PodSecurityContext{SupplementalGroups: []int64{2}}, nil)
	p.Mounted = &volume.Set{Volumes: []volume.Volume{
		{Name: "a", Ready: true, Backing: &volume.Backing{Group: 9}},
		{Name: "b", Ready: true, Backing: &volume.Backing{Group: 2}},
		{Name: "c", Backing: &volume.Backing{Group: 3}},
		{Name: "d", Ready: true, Backing: &volume.Backing{Group: 9}},
	}}
	got := p.containerSecurity(&p.Spec.Spec.Containers[0], image.User{}).SupplementalGroups
	if !slices.Equal(got, []int64{2, 9}) {
		t.Errorf("groups %v", got)
	}
}

// The user of a container is set even if it is the image's: a group without a user is invalid.
func TestUserOfTheImage(t *testing.T) {
	group := &v1.SecurityContext{RunAsGroup: ref(int64(5))}
	for _, test := range []struct {
		own  *v1.SecurityContext
		user image.User
		uid  *runtimeapi.Int64Value
		name string
	}{
		{nil, image.User{}, number64(0), ""},
		{nil, image.User{UID: ref(int64(7))}, number64(7), ""},
		{group, image.User{Name: "www"}, nil, "www"},
		{group, image.User{}, number64(0), ""},
		{&v1.SecurityContext{RunAsUser: ref(int64(9))}, image.User{Name: "www"}, number64(9), ""},
	} {
		p := secured(nil, test.own)
		got := p.containerSecurity(p.web(), test.user)
		if got.RunAsUser.String() != test.uid.String() || got.RunAsUsername != test.name {
			t.Errorf("%+v: %v", test, got)
		}
	}
}

// A container whose spec forbids root is refused if its image's user is root, or is a name that may
// be root's.
func TestImageUserIsChecked(t *testing.T) {
	p := secured(&v1.PodSecurityContext{RunAsNonRoot: ref(true)}, nil)
	for want, user := range map[string]image.User{
		"container has runAsNonRoot and image will run as root (pod: \"p_default(u)\", " +
			"container: web)": {},
		"container has runAsNonRoot and image has non-numeric user (www), cannot verify user is " +
			"non-root (pod: \"p_default(u)\", container: web)": {Name: "www"},
	} {
		if err := p.CheckImageUser(p.web(), user); err == nil || err.Error() != want {
			t.Errorf("user %+v: %v, want %s", user, err, want)
		}
	}
	if err := p.CheckImageUser(p.web(), image.User{UID: ref(int64(7))}); err != nil {
		t.Errorf("user 7 is refused: %v", err)
	}
}

// The temperature counters of CPUs are masked where there are any.
func TestThermalCountersAreMasked(t *testing.T) {
	p := newPod()
	before := len(p.containerSecurity(p.web(), image.User{}).MaskedPaths)
	p.Node.ThermalThrottleCPUs = []int{0, 12}
	got := p.containerSecurity(p.web(), image.User{}).MaskedPaths
	if len(got) != before+2 || got[before] != "/sys/devices/system/cpu/cpu0/thermal_throttle" ||
		got[before+1] != "/sys/devices/system/cpu/cpu12/thermal_throttle" {
		t.Errorf("masked %q", got)
	}
}

// An ephemeral container with a target has the target's processes, unless the pod's containers
// share theirs.
func TestTargetOfEphemeralContainer(t *testing.T) {
	for _, c := range []struct {
		target string
		share  bool
		want   runtimeapi.NamespaceMode
	}{
		{"", false, runtimeapi.NamespaceMode_CONTAINER},
		{"id", false, runtimeapi.NamespaceMode_TARGET},
		{"id", true, runtimeapi.NamespaceMode_POD},
	} {
		p := newPod()
		p.TargetID, p.Spec.Spec.ShareProcessNamespace = c.target, &c.share
		got := p.containerSecurity(p.web(), image.User{}).NamespaceOptions
		if got.Pid != c.want || (got.TargetId == "id") != (c.want == runtimeapi.NamespaceMode_TARGET) {
			t.Errorf("%+v: %v", c, got)
		}
		if sandbox := p.sandboxSecurity().NamespaceOptions; sandbox.TargetId != "" {
			t.Errorf("the sandbox has the target %v", sandbox)
		}
	}
}
