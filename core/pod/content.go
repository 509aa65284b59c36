package pod

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/op"
	"seedlet.dev/core/volume"
	"seedlet.dev/world"
)

// What the volumes of the pod hold that comes from outside: objects of the API server, tokens, and
// what is told of the pod.

// tellVolumes tells why volumes cannot be made, or made anew, once for each time that they could
// not.
func (p *Pod) tellVolumes(env *Env) {
	why, failures := p.Storage.Set.Failing(), p.Storage.Set.Failures()
	switch told := strconv.Itoa(failures) + " " + why; {
	case why == "":
		p.Storage.Told = ""
	case failures > 0 && told != p.Storage.Told:
		p.Storage.Told = told
		p.event(env, "", warning, "FailedMount", "%s", why)
	}
}

// refreshVolumes keeps the content of volumes up to date while a pod is being ended. What is not
// there is not made any more.
func (p *Pod) refreshVolumes(env *Env, w *waits) {
	if p.Spec == nil || len(p.Spec.Spec.Volumes) == 0 || !p.live() || !p.settled() ||
		!p.Storage.Set.Ready(&p.Spec.Spec) {
		return
	}
	p.renewTokens(env, w)
	p.makeVolumes(p.volumes(env), env, w)
}

// renewTokens asks for the tokens that the volumes hold.
func (p *Pod) renewTokens(env *Env, w *waits) {
	if env.Objects == nil {
		return
	}
	jitter := func(name string, most time.Duration) time.Duration {
		return spread(env.Node.Seed, p.UID+name, int32(most/time.Second))
	}
	w.pending(p.Storage.Tokens.Plan(p.Spec, p.Key(), subjectToken, jitter, env.Out))
}

func (p *Pod) volumes(env *Env) *volume.Pod {
	view := &volume.Pod{
		Spec: p.Spec, Dir: p.dir(env.Node), MemoryBytes: env.Node.MemoryBytes, Objects: env.Objects,
		Value: func(f *v1.DownwardAPIVolumeFile) (string, error) { return p.fileValue(f, env.Node) },
	}
	if env.Objects != nil {
		view.Token = p.token
	}
	return view
}

// token is what a volume with a token holds.
func (p *Pod) token(wanted *v1.ServiceAccountTokenProjection) (value, version string, err error) {
	value, version, problem := p.Storage.Tokens.Find(wanted)
	if problem != "" {
		err = errors.New("failed to fetch token: " + problem)
	}
	return value, version, err
}

// fileValue is what a file of a downward API volume says.
func (p *Pod) fileValue(file *v1.DownwardAPIVolumeFile, node *Node) (string, error) {
	if ref := file.ResourceFieldRef; ref != nil {
		want := p.want(ref.ContainerName)
		if want == nil {
			return "", fmt.Errorf("container %s not found", ref.ContainerName)
		}
		return p.resourceField(ref, want, node)
	}
	switch path := file.FieldRef.FieldPath; path {
	case "metadata.labels":
		return volume.Lines(p.Spec.Labels), nil
	case "metadata.annotations":
		return volume.Lines(p.Spec.Annotations), nil
	default:
		return p.field(path, node)
	}
}

// tokenAnswered takes the answer to a request for a token.
func (p *Pod) tokenAnswered(id world.OpID, r op.Record, ev world.Event, env *Env) {
	p.Storage.Tokens.Answered(id, r, ev)
	if ev.Err != nil {
		env.Out.Log(world.LevelWarning, "no token", "pod", p.FullName(), "error", ev.Err.Error())
	}
}
