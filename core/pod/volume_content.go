package pod

import (
	"errors"
	"path"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"seedlet.dev/core/criconfig"
	"seedlet.dev/core/csi"
	"seedlet.dev/core/op"
	"seedlet.dev/core/podcertificate"
	"seedlet.dev/core/scsi"
	"seedlet.dev/core/volume"
	"seedlet.dev/world"
)

// The content of the pod's volumes: objects of the API server, service account tokens, and fields
// of the pod (downward API).

const (
	reasonFailedMount = "FailedMount"
	reasonFailedMap   = "FailedMapVolume" // of a block volume
)

// recordVolumeFailures records an event when volumes cannot be created or updated, once for each
// failed attempt.
func (p *Pod) recordVolumeFailures(env *Env) {
	failure, failures := p.Storage.Volumes.AnyProblem(), p.Storage.Volumes.Failures()
	switch reported := strconv.Itoa(failures) + " " + failure; {
	case failure == "":
		p.Storage.ReportedFailure = ""
	case failures > 0 && reported != p.Storage.ReportedFailure:
		p.Storage.ReportedFailure = reported
		reason := reasonFailedMount
		if strings.HasPrefix(failure, "MapVolume.") &&
			!strings.HasPrefix(failure, "MapVolume.NodeAffinity") { // as the kubelet
			reason = reasonFailedMap
		}
		p.recordEvent(env, "", warning, reason, "%s", failure)
		p.countRefusal(p.Storage.Volumes.OverBudget(), env)
	}
}

// refreshVolumes keeps the content of volumes up to date while a pod terminates. Volumes that do
// not exist are not created any more.
func (p *Pod) refreshVolumes(env *Env, w *wakeTimer) {
	if p.Spec == nil || len(p.Spec.Spec.Volumes) == 0 || !p.HasLiveContainers() || !p.isSettled() ||
		!p.Storage.Volumes.Ready(&p.Spec.Spec) {
		return
	}
	p.renewCredentials(env, w)
	p.issueVolumeOperation(p.volumeView(env), env, w)
}

// renewCredentials requests the tokens and certificates that the volumes need.
func (p *Pod) renewCredentials(env *Env, w *wakeTimer) {
	if env.Objects == nil {
		return
	}
	jitter := func(name string, most time.Duration) time.Duration {
		return hashedDelay(env.Node.Seed, p.UID+name, int32(most/time.Second))
	}
	w.waitUntil(p.Storage.Tokens.Plan(p.Spec, p.Key(), subjectToken, jitter, env.Effects))
	if !p.needsCertificates(env) {
		return
	}
	var nodeUID types.UID
	if node, _ := nodeObject(env); node != nil {
		nodeUID = node.UID
	}
	w.waitUntil(p.Storage.Certificates.Plan(&podcertificate.Env{Pod: p.Spec,
		NodeName: env.Node.Name, NodeUID: nodeUID,
		Requests: env.Objects.Watch(podcertificate.AllRequests), Owner: p.Key(),
		Subject: subjectCertificate, Jitter: jitter, Effects: env.Effects,
		RecordWarning: func(reason, message string) {
			p.recordEvent(env, "", warning, reason, "%s", message)
		}}))
}

// needsCertificates reports whether the pod has certificates requested: never while the feature
// gate is off.
func (p *Pod) needsCertificates(env *Env) bool {
	return env.Node.PodCertificates && env.Objects != nil && podcertificate.IsNeeded(p.Spec)
}

// volumeDirs returns where the volumes of the pod are, and nothing else.
func (p *Pod) volumeDirs(node *Node) *volume.Pod {
	root := path.Dir(node.PodsDir)
	return &volume.Pod{Dir: p.dir(node), RootDir: root, DevicesDir: criconfig.DevicesDir(root),
		BlocksDir: criconfig.BlocksDir(root)}
}

func (p *Pod) volumeView(env *Env) *volume.Pod {
	view := p.volumeDirs(env.Node)
	view.Spec, view.Objects = p.Spec, env.Objects
	view.MemoryBytes = env.Node.Allocatable[v1.ResourceMemory]
	view.Value = p.criPod(env).DownwardAPIFile
	view.SetupEnded = func(v *v1.Volume, took time.Duration, failed bool) {
		p.countVolumeOperation(v, VolumeMount, took, failed, env)
	}
	view.Node = func() (*v1.Node, bool) { return nodeObject(env) }
	view.Shared = func(u csi.Use) volume.Shared { return p.sharedVolume(u, env) }
	view.Disk = func(u scsi.Use) scsi.UseState { return p.useDisk(u, env) }
	if env.Devices.Blocks != nil {
		view.UseDevice = func(volume string) { env.Devices.Blocks.Use(p.UID, volume) }
	}
	if env.Objects != nil {
		view.Token = p.tokenContent
	}
	if p.needsCertificates(env) {
		view.Certificate = p.Storage.Certificates.Find
	}
	return view
}

// nodeObject returns the Node at the API server, nil if there is none, and whether that is known.
func nodeObject(env *Env) (*v1.Node, bool) {
	if env.Objects == nil {
		return nil, true
	}
	o, known := env.Objects.Get(world.ResourceNodes, "", env.Node.Name)
	if o == nil {
		return nil, known
	}
	return o.Node, true
}

// tokenContent returns the content of the file of a service account token.
func (p *Pod) tokenContent(projection *v1.ServiceAccountTokenProjection) (value, version string,
	err error) {
	value, version, problem := p.Storage.Tokens.Find(projection)
	if problem != "" {
		err = errors.New("failed to fetch token: " + problem)
	}
	return value, version, err
}

// handleTokenCompletion handles the completion of a token request.
func (p *Pod) handleTokenCompletion(id world.OpID, r op.Record, ev world.Event, env *Env) {
	p.Storage.Tokens.HandleCompletion(id, r, ev)
	if ev.Err != nil {
		env.Effects.Log(world.LevelWarning, "token request failed", "pod", p.FullName(), "err",
			ev.Err.Error())
	}
}

// HasCertificates reports whether the pod has had certificates requested. Their ages are dates.
func (p *Pod) HasCertificates() bool { return len(p.Storage.Certificates.Certificates) > 0 }

// handleCertificateCompletion handles the completion of an operation for a certificate.
func (p *Pod) handleCertificateCompletion(id world.OpID, r op.Record, ev world.Event, env *Env) {
	p.Storage.Certificates.HandleCompletion(id, r, ev)
	if ev.Err != nil && !ev.Err.Has(world.KindExists) {
		env.Effects.Log(world.LevelWarning, "the request for a certificate failed", "pod",
			p.FullName(), "call", r.Call, "err", ev.Err.Error())
	}
}
