package pod

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/image"
	"seedlet.dev/core/op"
	"seedlet.dev/core/volume"
	"seedlet.dev/world"
)

func withVolume(mount v1.VolumeMount) *Pod {
	pod := spec(v1.RestartPolicyAlways, "", "web")
	mount.Name = "data"
	pod.Spec.Volumes = []v1.Volume{{Name: "data",
		VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}
	pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{mount}
	return facts(pod)
}

var volumesNode = &Node{PodsDir: "/pods"}

// asked plans the pod and returns what it asks for.
func asked(p *Pod, table *op.Table, now time.Time) ([]string, *Env) {
	env := &Env{Node: volumesNode, Out: &op.Out{}, Images: &image.Store{
		Images: map[string]*image.Image{"i": {ID: "sha", UserOf: "sha", PulledAt: t0.Add(1)}},
	}}
	env.Out.Begin(table, now)
	p.Plan(env)
	var calls []string
	for _, e := range env.Out.Take() {
		if e.Op != 0 {
			calls = append(calls, world.Call(e.Body))
		}
	}
	return calls, env
}

// finishOp answers the operation in flight.
func finishOp(p *Pod, table *op.Table, env *Env, ev world.Event) {
	id := p.Op
	record, _ := table.Settle(id)
	ev.Time = t0
	p.Answered(id, record, ev, env)
}

// A container is created only after its volumes, sub-paths and /etc/hosts are there.
func TestAContainerWaitsForItsVolumes(t *testing.T) {
	p := withVolume(v1.VolumeMount{MountPath: "/data", SubPath: "a"})
	p.Sandboxes[0].IPs = []string{"10.0.0.9"}
	var table op.Table
	var got []string
	for range 20 {
		calls, env := asked(p, &table, t0)
		if len(calls) != 1 {
			t.Fatalf("after %v: %v", got, calls)
		}
		if got = append(got, calls[0]); calls[0] == "CreateContainer" {
			break
		}
		ev := world.Event{Body: &world.Done{}}
		if calls[0] == "StatPath" {
			ev = world.Event{Err: world.Errorf(world.KindNotFound, "StatPath", "none")}
		}
		finishOp(p, &table, env, ev)
	}
	want := "StatPath MakeDir MakeDir MakeDir MakeDir BindSubPath WriteFile CreateContainer"
	if strings.Join(got, " ") != want {
		t.Errorf("%v, want %s", got, want)
	}
}

// A volume that fails is told of in the kubelet's words, and makes no container.
func TestAVolumeThatFails(t *testing.T) {
	p := withVolume(v1.VolumeMount{MountPath: "/data"})
	var table op.Table
	_, env := asked(p, &table, t0)
	finishOp(p, &table, env, world.Event{Err: world.Errorf(world.KindInternal, "StatPath", "EIO")})
	want := `MountVolume.SetUp failed for volume "data" : EIO`
	if got := p.waiting("web", App); got.Reason != "ContainerCreating" || got.Message != want {
		t.Errorf("%+v, want %s", got, want)
	}
	if calls, _ := asked(p, &table, t0); len(calls) != 0 {
		t.Errorf("%v, want nothing before the back-off has passed", calls)
	}
	if calls, _ := asked(p, &table, t0.Add(time.Second)); len(calls) != 1 {
		t.Errorf("%v after the back-off", calls)
	}
}

// What is mounted is unmounted after the last container, sub-paths first, and before removal.
func TestRelease(t *testing.T) {
	for gone, want := range map[bool]string{
		true:  "Unmount Unmount RemoveTree RemoveTree RemovePodSandbox",
		false: "Unmount Unmount RemoveTree RemoveTree",
	} {
		p := withVolume(v1.VolumeMount{MountPath: "/data"})
		p.Stage, p.Gone = Terminated, gone
		p.Sandboxes[0].Ready, p.Sandboxes[0].Stopped = false, true
		var table op.Table
		var got []string
		for range 8 {
			calls, env := asked(p, &table, t0)
			if got = append(got, calls...); p.Op == 0 {
				break
			}
			finishOp(p, &table, env, world.Event{Body: &world.Done{}})
		}
		if strings.Join(got, " ") != want {
			t.Errorf("gone %v: %v, want %s", gone, got, want)
		}
	}
}

func TestNothingIsReleasedUnderAContainer(t *testing.T) {
	p := withVolume(v1.VolumeMount{MountPath: "/data"})
	c := run("web", 0, Running)
	c.SandboxID = "s"
	p.addContainer(c)
	p.Unwant(t0)
	p.Stale = time.Time{}
	var table op.Table
	calls, _ := asked(p, &table, t0)
	if strings.Contains(strings.Join(calls, " "), "Unmount") || p.Op != 0 {
		t.Errorf("%v while a container runs", calls)
	}
}

// A pod that is over the limit of a volume is ended, and has failed for that reason.
func TestEviction(t *testing.T) {
	p := withVolume(v1.VolumeMount{MountPath: "/data"})
	limit := resource.MustParse("1Mi")
	p.Spec.Spec.Volumes[0].EmptyDir.SizeLimit = &limit
	p.Storage.Set = volume.Set{Over: "data"}
	critical := int32(2_000_000_000)
	p.Spec.Spec.Priority = &critical
	env := &Env{Node: volumesNode, Out: &op.Out{}}
	env.Out.Begin(&op.Table{}, t0)
	if p.evict(env) {
		t.Fatal("a critical pod is evicted")
	}
	p.Spec.Spec.Priority = nil
	if !p.evict(env) || p.Kill.Grace != time.Second || p.Stage != Terminating {
		t.Fatalf("not evicted: %+v", p.Kill)
	}
	p.Stage, p.Known, p.Record.End = Terminated, true, &p.Kill
	p.Phase = p.phase()
	shown := p.API(volumesNode, "containerd")
	want := `Usage of EmptyDir volume "data" exceeds the limit "1Mi". `
	if s := shown.Status; s.Phase != v1.PodFailed || s.Reason != "Evicted" || s.Message != want {
		t.Errorf("shown as %s %s %q", s.Phase, s.Reason, s.Message)
	}
}

func TestMounts(t *testing.T) {
	enabled, both := v1.RecursiveReadOnlyEnabled, v1.MountPropagationBidirectional
	env := []*runtimeapi.KeyValue{{Key: "POD", Value: []byte("p1")}}
	at := "/pods/u/volumes/kubernetes.io~empty-dir/data"
	bound := "/pods/u/volume-subpaths/data/web/0"
	for _, c := range []struct {
		mount     v1.VolumeMount
		recursive bool // the runtime can
		want      *runtimeapi.Mount
		err       string
	}{
		{v1.VolumeMount{MountPath: "d"}, false,
			&runtimeapi.Mount{ContainerPath: "/d", HostPath: at}, ""},
		{v1.VolumeMount{MountPath: "/d", ReadOnly: true, RecursiveReadOnly: &enabled}, true,
			&runtimeapi.Mount{ContainerPath: "/d", HostPath: at, Readonly: true,
				RecursiveReadOnly: true}, ""},
		{v1.VolumeMount{MountPath: "/d", ReadOnly: true, RecursiveReadOnly: &enabled}, false, nil,
			"not supported by the runtime"},
		{v1.VolumeMount{MountPath: "/d", MountPropagation: &both}, false,
			&runtimeapi.Mount{ContainerPath: "/d", HostPath: at,
				Propagation: runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL}, ""},
		{v1.VolumeMount{MountPath: "/d", SubPathExpr: "$(POD)/x"}, false,
			&runtimeapi.Mount{ContainerPath: "/d", HostPath: bound}, ""},
		{v1.VolumeMount{MountPath: "/d", SubPathExpr: "$(NONE)"}, false, nil, `"NONE"`},
		{v1.VolumeMount{MountPath: "/d", SubPath: "a/../../b"}, false, nil, "'..'"},
		{v1.VolumeMount{MountPath: "/d", SubPath: "/etc"}, false, nil, "absolute"},
	} {
		p := withVolume(c.mount)
		node := &Node{PodsDir: "/pods", RecursiveReadOnly: c.recursive}
		got, err := p.mounts(p.want("web"), env, nil, node)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%+v: %v, want %s", c.mount, err, c.err)
			}
			continue
		}
		if err != nil || len(got) != 1 || got[0].String() != c.want.String() {
			t.Errorf("%+v: %v, %v; want %v", c.mount, got, err, c.want)
		}
	}
}

func TestHosts(t *testing.T) {
	p := withVolume(v1.VolumeMount{MountPath: "/data"})
	p.Spec.Spec.Subdomain = "db"
	p.Spec.Spec.HostAliases = []v1.HostAlias{{IP: "1.2.3.4", Hostnames: []string{"x", "y"}}}
	p.Sandboxes[0].IPs = []string{"10.0.0.9"}
	node := &Node{PodsDir: "/pods", DNS: DNS{Domain: "cluster.local"}}
	node.Hosts.Text = "127.0.0.1 node\n"
	aliases := "\n# Entries added by HostAliases.\n1.2.3.4\tx\ty\n"
	end := "fe00::2\tip6-allrouters\n10.0.0.9\tp.db.default.svc.cluster.local\tp\n" + aliases
	if got := p.hostsFile(node); !strings.HasSuffix(got, end) ||
		!strings.HasPrefix(got, "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n") {
		t.Errorf("%s", got)
	}
	yes := true
	p.Spec.Spec.SetHostnameAsFQDN = &yes
	if got, err := p.sandboxHostname(node); got != "p.db.default.svc.cluster.local" || err != nil {
		t.Errorf("host name %q, %v", got, err)
	}
	p.Spec.Spec.Subdomain = strings.Repeat("d", 60)
	if _, err := p.sandboxHostname(node); err == nil {
		t.Error("a host name of more than 64 characters")
	}
	p.Spec.Spec.HostNetwork = true
	want := "# Kubernetes-managed hosts file (host network).\n127.0.0.1 node\n" + aliases
	if diff := cmp.Diff(want, p.hostsFile(node)); diff != "" {
		t.Error(diff)
	}
	if !p.hostsMounted(p.want("web")) {
		t.Error("not mounted")
	}
	p.Spec.Spec.Containers[0].VolumeMounts[0].MountPath = "/etc/hosts"
	if p.hostsMounted(p.want("web")) {
		t.Error("mounted over what the container mounts there itself")
	}
}

func TestDNS(t *testing.T) {
	ndots := "2"
	own := &v1.PodDNSConfig{Nameservers: []string{"9.9.9.9"}, Searches: []string{"own"},
		Options: []v1.PodDNSConfigOption{{Name: "ndots", Value: &ndots}, {Name: "edns0"}}}
	text := "# c\nnameserver 1.1.1.1\nsearch lost\nsearch home. lan\noptions timeout:1\n"
	cluster := "10.96.0.10 | default.svc.c.l svc.c.l c.l home lan | ndots:5"
	host := "1.1.1.1 | home lan | timeout:1"
	for _, c := range []struct {
		policy  v1.DNSPolicy
		network bool
		servers []string
		own     *v1.PodDNSConfig
		want    string
	}{
		{v1.DNSClusterFirst, false, []string{"10.96.0.10"}, nil, cluster},
		{v1.DNSClusterFirst, true, []string{"10.96.0.10"}, nil, host},
		{v1.DNSClusterFirstWithHostNet, true, []string{"10.96.0.10"}, nil, cluster},
		{v1.DNSClusterFirst, false, nil, nil, host},
		{v1.DNSDefault, false, []string{"10.96.0.10"}, nil, host},
		{v1.DNSNone, false, []string{"10.96.0.10"}, own, "9.9.9.9 | own | ndots:2 edns0"},
		{v1.DNSClusterFirst, false, []string{"a", "b", "c"}, own,
			"a b c | default.svc.c.l svc.c.l c.l home lan own | ndots:2 edns0"},
	} {
		p := withVolume(v1.VolumeMount{MountPath: "/data"})
		p.Spec.Spec.DNSPolicy, p.Spec.Spec.HostNetwork = c.policy, c.network
		p.Spec.Spec.DNSConfig = c.own
		node := &Node{DNS: DNS{Servers: c.servers, Domain: "c.l"}}
		node.Resolv.Path, node.Resolv.Text = "/etc/resolv.conf", text
		config, left := p.dnsConfig(node)
		got := strings.Join(config.Servers, " ") + " | " + strings.Join(config.Searches, " ") +
			" | " + strings.Join(config.Options, " ")
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.policy, got, c.want)
		}
		if over := len(c.servers) == 3; over != (left.reason == "DNSConfigForming") {
			t.Errorf("%s: warned of %q", c.policy, left)
		}
	}
}

func TestSearchPathsAreCut(t *testing.T) {
	config := &runtimeapi.DNSConfig{}
	for range 40 {
		config.Searches = append(config.Searches, strings.Repeat("x", 100))
	}
	if cutResolv(config); len(config.Searches) != 20 { // 20 of 100 and 19 spaces
		t.Errorf("%d search paths", len(config.Searches))
	}
}

// What only the API server or a driver could give is refused, and by its path.
func TestUnsupportedVolumes(t *testing.T) {
	fields := v1.VolumeProjection{DownwardAPI: &v1.DownwardAPIProjection{}}
	secret := v1.VolumeProjection{Secret: &v1.SecretProjection{}}
	bundle := v1.VolumeProjection{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{}}
	certificate := v1.VolumeProjection{PodCertificate: &v1.PodCertificateProjection{}}
	storage := []v1.DownwardAPIVolumeFile{{Path: "s", ResourceFieldRef: &v1.ResourceFieldSelector{
		ContainerName: "web", Resource: "limits.ephemeral-storage"}}}
	for _, c := range []struct {
		source v1.VolumeSource
		want   string
	}{
		{v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{}}, ""},
		{v1.VolumeSource{NFS: &v1.NFSVolumeSource{}}, "spec.volumes[0] (v)"},
		{v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{
			Sources: []v1.VolumeProjection{fields}}}, ""},
		{v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{
			Sources: []v1.VolumeProjection{secret, bundle}}}, ""},
		{v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{
			Sources: []v1.VolumeProjection{secret, certificate}}},
			"spec.volumes[0].projected.sources[1]"},
		{v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: storage}},
			"spec.volumes[0] (s: limits.ephemeral-storage without a limit)"},
	} {
		pod := spec(v1.RestartPolicyAlways, "", "web")
		pod.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: c.source}}
		if got := strings.Join(Unsupported(pod, false), ", "); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// That a pod was ended for good is shown once it is kept.
func TestAnEndIsKeptBeforeItIsShown(t *testing.T) {
	p := withVolume(v1.VolumeMount{MountPath: "/data"})
	limit := resource.MustParse("1Mi")
	p.Spec.Spec.Volumes[0].EmptyDir.SizeLimit = &limit
	c := run("web", 0, Running)
	c.Hash, c.SandboxID = hashOf(&p.Spec.Spec.Containers[0]), "s"
	p.addContainer(c)
	p.Storage.Set.Over = "data"
	r := newRig(t, p).at(0)
	r.want("WriteFile")
	r.pod.container("web0").advance(Exited, r.now)
	r.pod.container("web0").Inspected, r.pod.Stale = Exited, time.Time{}
	r.at(time.Second)
	if r.find("StopPodSandbox") != nil {
		r.answer("StopPodSandbox", &runtimeapi.StopPodSandboxResponse{}, nil)
		r.pod.Stale = time.Time{}
		r.at(2 * time.Second)
	}
	if p.Phase == v1.PodFailed {
		t.Errorf("shown as Failed, stage %s, before the end is kept", p.Stage)
	}
	r.answer("WriteFile", &world.Done{}, nil).at(3 * time.Second)
	if p.Phase != v1.PodFailed {
		t.Errorf("shown as %s, stage %s, after the end was kept", p.Phase, p.Stage)
	}
}

// A volume that has become another one is looked at, whatever was asked about the one before.
func TestAVolumeThatChangesWhileItIsLookedAt(t *testing.T) {
	p := withVolume(v1.VolumeMount{MountPath: "/data"})
	must := v1.HostPathDirectory
	p.Spec.Spec.Volumes[0].VolumeSource = v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{
		Path: "/a", Type: &must}}
	r := newRig(t, p).at(0)
	changed := p.Spec.DeepCopy()
	changed.Spec.Volumes[0].HostPath.Path = "/b"
	p.Want(changed, r.now)
	r.answer("StatPath", &world.PathInfo{Kind: world.PathDirectory}, nil)
	if got := r.want("StatPath").Body.(*world.StatPath).Path; got != "/b" {
		t.Errorf("looks at %s", got)
	}
}

// What goes to a path of the author's choice is told apart from what is the agent's own.
func TestOperationsAtAHostPathAreTold(t *testing.T) {
	must := v1.HostPathDirectory
	node := v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/mnt/a/", Type: &must}}
	own := v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}
	for _, c := range []struct {
		source       v1.VolumeSource
		volume, bind string
	}{{node, "/mnt/a", "/mnt/a/b"}, {own, "", ""}} {
		p := withVolume(v1.VolumeMount{MountPath: "/data", SubPath: "b"})
		p.Spec.Spec.Volumes[0].VolumeSource = c.source
		p.Dir, p.LogDirs = true, []string{"web"}
		r := newRig(t, p).at(0)
		if got := r.want("StatPath").HostPath; got != c.volume {
			t.Errorf("looks at a volume at %q, want %q", got, c.volume)
		}
		r.answer("StatPath", &world.PathInfo{Kind: world.PathDirectory}, nil)
		if got := r.want("BindSubPath").HostPath; got != c.bind {
			t.Errorf("binds a sub-path at %q, want %q", got, c.bind)
		}
	}
}

// A sub-path that has become another one is mounted anew.
func TestASubPathThatChanges(t *testing.T) {
	for _, early := range []bool{false, true} {
		p := withVolume(v1.VolumeMount{MountPath: "/data", SubPath: "a"})
		p.Storage.Set.Next(p.volumes(&Env{Node: volumesNode}), t0)
		p.Storage.Set.Volumes[0].Right, p.Storage.Set.Volumes[0].Ready = true, true
		p.Dir, p.LogDirs = true, []string{"web"}
		r := newRig(t, p).at(0)
		r.want("BindSubPath")
		if !early {
			r.answer("BindSubPath", &world.Done{}, nil).want("CreateContainer")
		}
		changed := p.Spec.DeepCopy()
		changed.Spec.Containers[0].VolumeMounts[0].SubPath = "b"
		p.Want(changed, r.now)
		if early {
			r.answer("BindSubPath", &world.Done{}, nil)
		} else {
			r.answer("CreateContainer", nil, world.Errorf(world.KindInternal, "", "no"))
			p.Stale = time.Time{}
		}
		for range 5 {
			r.at(time.Minute)
			switch {
			case r.find("StatPath") != nil:
				r.answer("StatPath", &world.PathInfo{Kind: world.PathDirectory}, nil)
			case r.find("MakeDir") != nil:
				r.answer("MakeDir", &world.Done{}, nil)
			}
		}
		if got := r.want("BindSubPath").Body.(*world.BindSubPath).SubPath; got != "b" {
			t.Errorf("early %v: binds %s", early, got)
		}
	}
}

// An /etc/hosts that is out of date when it has been written is written once more.
func TestHostsThatChangeWhileTheyAreWritten(t *testing.T) {
	p := withVolume(v1.VolumeMount{MountPath: "/data"})
	p.Sandboxes[0].IPs = []string{"10.0.0.9"}
	p.Storage.Set.Volumes = []volume.Volume{{Name: "data", Right: true, Ready: true}}
	p.Dir, p.LogDirs = true, []string{"web"}
	r := newRig(t, p).at(0)
	r.want("WriteFile")
	changed := p.Spec.DeepCopy()
	changed.Spec.HostAliases = []v1.HostAlias{{IP: "10.1.2.3", Hostnames: []string{"db"}}}
	p.Want(changed, r.now)
	p.Storage.Set.Volumes[0].Right = true
	r.answer("WriteFile", &world.Done{}, nil)
	if file := string(r.want("WriteFile").Body.(*world.WriteFile).Data); !strings.Contains(
		file, "10.1.2.3\tdb") {
		t.Errorf("writes %s", file)
	}
}
