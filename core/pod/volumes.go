package pod

import (
	"hash/fnv"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/admission"
	"seedlet.dev/core/op"
	"seedlet.dev/core/token"
	"seedlet.dev/core/volume"
	"seedlet.dev/world"
)

// The pod's volumes, and when.
//
// They are made after the sandbox and before the first container. The sandbox comes first because
// its record is what tells an agent that was killed halfway that there is something to clean up,
// and it goes last for the same reason. They are unmounted when no container runs any more: sub-
// paths first, then everything below the pod's directory, whoever mounted it, and only then is
// anything removed.

// Storage is what the pod has on the node's disk besides logs.
type Storage struct {
	Set   volume.Set `json:"set"`
	Binds []string   `json:"binds,omitempty"` // sub-paths that were mounted, as bindKey tells
	Hosts string     `json:"hosts,omitempty"` // which /etc/hosts was written
	// Tokens are those that volumes hold.
	Tokens token.Set `json:"tokens"`
	Told   string    `json:"told,omitempty"` // which failure of volumes was told last
	// Making is the sub-path or the /etc/hosts that a request in flight makes; the pod's Op is
	// that request. The spec may be another one when it is answered.
	Making string `json:"making,omitempty"`
	// Release is how many steps of the release have been done.
	Release int `json:"release,omitempty"`
}

// The subjects of operations on storage, each below this one.
const storageSubject = "storage/"

const (
	subjectVolume  = storageSubject + "volume/"  // and the volume
	subjectBind    = storageSubject + "bind/"    // and the container
	subjectHosts   = storageSubject + "hosts/"   // and the container
	subjectRelease = storageSubject + "release/" // and the step
	subjectMeasure = storageSubject + "measure/" // and the volume
	subjectToken   = storageSubject + "token/"
)

// renew forgets what was made for an earlier sandbox: whoever removed that may have removed it.
func (s *Storage) renew() {
	s.Set.Forget()
	s.Binds, s.Hosts, s.Release = nil, "", 0
}

// syncVolumes makes the volumes that are not there, and reports whether containers may be made.
func (p *Pod) syncVolumes(env *Env, w *waits) bool {
	if len(p.Spec.Spec.Volumes) == 0 {
		return true
	}
	p.renewTokens(env, w)
	view := p.volumes(env)
	if p.makeVolumes(view, env, w) {
		return false
	}
	p.measure(view, env, w)
	return p.Storage.Set.Ready(&p.Spec.Spec)
}

// makeVolumes begins the next operation that a volume needs, and reports whether there is one.
func (p *Pod) makeVolumes(view *volume.Pod, env *Env, w *waits) bool {
	ask, at := p.Storage.Set.Next(view, env.Out.Now())
	p.tellVolumes(env)
	if ask == nil {
		w.pending(at)
		return false
	}
	p.Op = env.Out.AskAt(ask.HostPath, p.Key(), subjectVolume+ask.Volume, fsTimeout, ask.Body)
	return true
}

// measure looks now and then how large volumes with a limit have become.
func (p *Pod) measure(view *volume.Pod, env *Env, w *waits) {
	set := &p.Storage.Set
	ask, at := set.Measure(view, env.Out.Now())
	if ask == nil {
		w.pending(at)
		return
	}
	set.Began(env.Out.Ask(p.Key(), subjectMeasure+ask.Volume, fsTimeout, ask.Body), ask.Volume)
}

const (
	reasonEvicted = "Evicted"
	evictionGrace = time.Second // of a pod that is over the limit of a volume, as the kubelet's
)

// evict ends a pod one of whose volumes has become too large, and reports whether it did. A static
// pod, which nobody would make anew elsewhere, and what is critical are not ended for it
// (upstream #40573).
func (p *Pod) evict(env *Env) bool {
	over := p.Storage.Set.OverMessage(&p.Spec.Spec)
	if over == "" || admission.Critical(p.Spec, p.IsStatic()) {
		return false
	}
	p.event(env, "", warning, reasonEvicted, "%s", over)
	p.end(Kill{Reason: reasonEvicted, Message: over, Phase: v1.PodFailed,
		Grace: min(p.grace(), evictionGrace)}, env.Out.Now())
	return true
}

// Evicted says whether the pod is being ended, or was, because of what it uses.
func (p *Pod) Evicted() bool { return p.Kill.Reason == reasonEvicted }

// prepareMounts takes the next step on the way to what a container mounts besides whole volumes:
// sub-paths and /etc/hosts. It reports whether one has begun, and whether none is left.
func (p *Pod) prepareMounts(want *v1.Container, env *Env) (begun, ready bool) {
	if !p.current().Inspected || p.Spec.Spec.HostNetwork && !env.Node.Hosts.Known {
		return false, false
	}
	variables, err := p.environment(want, env)
	for i := 0; i < len(want.VolumeMounts) && err == nil; i++ {
		bind, _ := p.bind(want, i, variables, env.Node) // an error has been told of already
		if bind == nil {
			continue
		}
		key := bindKey(bind) + "\x00" + p.Storage.Set.Holds(want.VolumeMounts[i].Name)
		if slices.Contains(p.Storage.Binds, key) {
			continue
		}
		p.Storage.Making = key
		p.Op = env.Out.AskAt(p.hostPath(want.VolumeMounts[i].Name, bind.SubPath), p.Key(),
			subjectBind+want.Name+"/"+strconv.Itoa(i), fsTimeout, bind)
		return true, false
	}
	if !p.hostsMounted(want) {
		return false, true
	}
	hosts := []byte(p.hostsFile(env.Node))
	sum := sumOf(hosts)
	if p.Storage.Hosts == sum {
		return false, true
	}
	p.Storage.Making = sum
	p.Op = env.Out.Ask(p.Key(), subjectHosts+want.Name, fsTimeout, &world.WriteFile{
		Path: p.hostsPath(env.Node), Data: hosts, Mode: 0o644,
		Volatile: true}) // it is written anew for another sandbox
	return true, false
}

// hostPath is where a sub-path of a volume is, if that is not the agent's own.
func (p *Pod) hostPath(volume, subPath string) string {
	if v := p.volume(volume); v != nil && v.HostPath != nil {
		return path.Join(v.HostPath.Path, subPath)
	}
	return ""
}

// sumOf tells one /etc/hosts from another.
func sumOf(hosts []byte) string {
	h := fnv.New64a()
	h.Write(hosts)
	return strconv.FormatUint(h.Sum64(), 16)
}

// releaseVolumes undoes the pod's mounts, and reports whether there is still something to do. Of
// a pod that is wanted, and stays as it ended, the volumes are removed as well.
func (p *Pod) releaseVolumes(env *Env) bool {
	dir := p.dir(env.Node)
	steps := []any{
		&world.Unmount{Path: volume.SubPaths(dir)}, &world.Unmount{Path: dir},
		&world.RemoveTree{Path: volume.SubPaths(dir)}, &world.RemoveTree{Path: dir + "/volumes"},
	}
	if p.Gone {
		steps = steps[:2] // the whole directory goes
	}
	if p.Storage.Release >= len(steps) {
		return false
	}
	p.Op = env.Out.Ask(p.Key(), subjectRelease+strconv.Itoa(p.Storage.Release), fsTimeout,
		steps[p.Storage.Release])
	return true
}

// storageAnswered takes the answer to an operation on storage, and reports whether it was one.
func (p *Pod) storageAnswered(id world.OpID, r op.Record, ev world.Event, env *Env) bool {
	kind, rest, is := strings.Cut(strings.TrimPrefix(r.Subject, storageSubject), "/")
	if !is || !strings.HasPrefix(r.Subject, storageSubject) {
		return false
	}
	switch {
	case kind == "token":
		p.tokenAnswered(id, r, ev, env)
		return true
	case r.Call == "MeasureTree":
		if p.Storage.Set.MeasureOp == id && p.Spec != nil {
			p.Storage.Set.MeasureAnswered(&p.Spec.Spec, ev)
		}
		return true
	}
	if p.Op != id {
		panic("pod: " + p.FullName() + " is told of an operation it did not begin: " + r.Call)
	}
	p.Op = 0
	container := "" // whose making waits
	switch kind {
	case "volume":
		p.volumeAnswered(rest, r, ev, env)
		return true
	case "bind", "hosts":
		container, _, _ = strings.Cut(rest, "/")
	}
	if ev.Err != nil {
		pr := p.failed(container, r.Call, ev.Err, ev.Time)
		if kind == "bind" {
			pr.Message = "failed to prepare subPath for a volume mount of container \"" +
				container + "\": " + ev.Err.Message
		}
		p.tellFailure(pr, env)
		return true
	}
	p.solved(container, r.Call)
	switch kind {
	case "bind":
		p.Storage.bound()
	case "hosts":
		p.Storage.Hosts = p.Storage.Making
	case "release":
		p.Storage.Release++
	}
	return true
}

// volumeAnswered takes the answer to an operation on a volume. What is known of the runtime is
// not in doubt when it fails: the volume is looked at once more, later.
func (p *Pod) volumeAnswered(name string, r op.Record, ev world.Event, env *Env) {
	p.Storage.Set.Answered(name, r.Call, ev)
	p.tellVolumes(env)
}

// bindKey tells one sub-path from another: where it is mounted, and what. The file of a volume that
// has been written anew is another one, and a container that is made then is to have that.
func bindKey(bind *world.BindSubPath) string {
	return bind.Target + "\x00" + bind.Root + "\x00" + bind.SubPath
}

// bound records that a sub-path has been mounted, in the place of what was there.
func (s *Storage) bound() {
	target, _, _ := strings.Cut(s.Making, "\x00")
	s.Binds = slices.DeleteFunc(s.Binds, func(key string) bool {
		return strings.HasPrefix(key, target+"\x00")
	})
	s.Binds = append(s.Binds, s.Making)
}
