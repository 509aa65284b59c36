package plan

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Hostile is how a pod of the API server harms the pods of other tenants: it takes as much of what
// all pods of the node share as the API server accepts. Such a pod need not run, but has to be
// removed without a trace. A pod that is hostile only by the behaviour of its processes has an
// empty entry.
type Hostile struct {
	Tokens     int `json:"tokens,omitempty"`     // different service account tokens, in one volume
	References int `json:"references,omitempty"` // optional Secrets, of which none exists
	Doublings  int `json:"doublings,omitempty"`  // variables that name the one before twice
	// EnvFrom and Files are how often the variables of a container, and a volume, are taken from
	// the ConfigMap Object.
	EnvFrom int    `json:"envFrom,omitempty"`
	Files   int    `json:"files,omitempty"`
	Object  string `json:"object,omitempty"`
	// Containers are copies of the first container. They behave as it does.
	Containers int `json:"containers,omitempty"`
	// Grace is the pod's grace period, if it is not that of the manifest.
	Grace Duration `json:"grace,omitempty"`
	// TakenOver gives the pod a volume of a kind that the agent does not support, and a start time,
	// as a pod has that was run by another agent.
	TakenOver bool `json:"takenOver,omitempty"`
	// PullSecrets is how often the pod names a Secret of its own as an image pull secret, which has
	// credentials for so many Registries.
	PullSecrets int `json:"pullSecrets,omitempty"`
	Registries  int `json:"registries,omitempty"`
	// LongNames are the KiB of the name of a variable and of the path of a mount, LongImage those
	// of the reference to an image.
	LongNames int `json:"longNames,omitempty"`
	LongImage int `json:"longImage,omitempty"`
	// StatusRoom is how many bytes the status of the pod may have: the API server refuses a larger
	// one as too large, as if the spec took the rest. Zero: no bound.
	StatusRoom int `json:"statusRoom,omitempty"`
	// ProbeCommand is the KiB of the command of a readiness probe.
	ProbeCommand int `json:"probeCommand,omitempty"`
	// Images are copies of the first container, each of an image of its own that it always pulls.
	Images  int             `json:"images,omitempty"`
	Storage *HostileStorage `json:"storage,omitempty"`
}

// HostileRange is how a pod may be hostile. Each of the amounts is zero in half of the pods.
type HostileRange struct {
	Tokens     Count  `json:"tokens,omitempty"`
	References Count  `json:"references,omitempty"`
	Doublings  Count  `json:"doublings,omitempty"`
	EnvFrom    Count  `json:"envFrom,omitempty"`
	Files      Count  `json:"files,omitempty"`
	Object     string `json:"object,omitempty"`
	Containers Count  `json:"containers,omitempty"`
	Grace      Span   `json:"grace,omitempty"`
	TakenOver  bool   `json:"takenOver,omitempty"`

	PullSecrets Count `json:"pullSecrets,omitempty"`
	Registries  Count `json:"registries,omitempty"`
	LongNames   Count `json:"longNames,omitempty"`
	LongImage   Count `json:"longImage,omitempty"`
	StatusRoom  Count `json:"statusRoom,omitempty"`

	ProbeCommand Count `json:"probeCommand,omitempty"`
	Images       Count `json:"images,omitempty"`

	Storage *HostileStorageRange `json:"storage,omitempty"`
	// Stays is after what time the pod is deleted; absent: it is as others are.
	Stays *Span `json:"stays,omitempty"`
}

// hostile generates how a pod is hostile; nil if its group is not. Each pod has its own stream.
func (g *generator) hostile(pod string, h *HostileRange) *Hostile {
	if h == nil {
		return nil
	}
	r := g.stream("hostile " + pod)
	amount := func(c Count) int {
		n := c.draw(r)
		if r.IntN(2) == 0 {
			return 0
		}
		return n
	}
	return &Hostile{Tokens: amount(h.Tokens), References: amount(h.References),
		Doublings: amount(h.Doublings), EnvFrom: amount(h.EnvFrom), Files: amount(h.Files),
		Object: h.Object, Containers: amount(h.Containers), Grace: Duration(h.Grace.draw(r)),
		TakenOver: h.TakenOver, PullSecrets: amount(h.PullSecrets), Registries: amount(h.Registries),
		LongNames: amount(h.LongNames), LongImage: amount(h.LongImage),
		StatusRoom: amount(h.StatusRoom), ProbeCommand: amount(h.ProbeCommand),
		Images: amount(h.Images), Storage: h.Storage.storage(amount, r)}
}

// addHostileDeletion adds the deletion of a hostile pod that was created at a time, and reports
// whether its group says when that is.
func (g *generator) addHostileDeletion(pod *Pod, group *PodGroup, at Duration) bool {
	if group.Hostile == nil || group.Hostile.Stays == nil {
		return false
	}
	at += Duration(group.Hostile.Stays.draw(g.stream("stay of " + pod.Name)))
	g.addAct(at, Act{Verb: VerbDelete, Pod: pod.Name})
	return true
}

// addPullSecrets adds the Secrets with the credentials of hostile pods, and their creation. It
// comes after the acts that pick an object, which pick none of these.
func (g *generator) addPullSecrets() {
	for i := range g.plan.Spec.Pods {
		p := &g.plan.Spec.Pods[i]
		if p.Hostile == nil || p.Hostile.PullSecrets == 0 {
			continue
		}
		name := pullSecretName(ManifestName(p.Manifest))
		g.plan.Spec.Objects = append(g.plan.Spec.Objects, Object{Name: name,
			Registries: p.Hostile.Registries, Manifest: map[string]any{"apiVersion": "v1",
				"kind": "Secret", "type": string(v1.SecretTypeDockerConfigJson),
				"metadata": map[string]any{"name": name}}})
		g.addAct(0, Act{Verb: VerbCreate, Object: name})
	}
}

// pullSecretName returns the name of the Secret of a hostile pod.
func pullSecretName(pod string) string { return pod + "-registries" }

// dockerConfig returns a Docker configuration with credentials for so many registries. Those of the
// tests are among them, by a wildcard.
func dockerConfig(registries int) []byte {
	var b strings.Builder
	b.WriteString(`{"auths":{"*.test":{"username":"me","password":"secret"}`)
	for n := range registries {
		fmt.Fprintf(&b, `,"registry-%d.test/path":{"username":"me","password":"secret-%d"}`, n, n)
	}
	b.WriteString("}}")
	return []byte(b.String())
}

// takenOverStatus is the patch of the status of a pod that was run by another agent.
func takenOverStatus() map[string]any {
	return map[string]any{"status": map[string]any{
		"startTime": Start.Add(-time.Hour).Format(time.RFC3339)}}
}

// doublingBytes is the length of the first of the variables that are doubled.
const doublingBytes = 64

// addTo adds the amounts to the spec of a pod.
func (h *Hostile) addTo(pod *v1.Pod) {
	spec := &pod.Spec
	first := &spec.Containers[0]
	value := fmt.Sprintf("%0*d", doublingBytes, 0)
	for n := range h.Doublings {
		first.Env = append(first.Env, v1.EnvVar{Name: fmt.Sprint("DOUBLED_", n), Value: value})
		value = fmt.Sprintf("$(DOUBLED_%d)$(DOUBLED_%d)", n, n)
	}
	for n := range h.EnvFrom {
		from := v1.EnvFromSource{Prefix: fmt.Sprintf("P%d_", n),
			ConfigMapRef: &v1.ConfigMapEnvSource{}}
		from.ConfigMapRef.Name = h.Object
		first.EnvFrom = append(first.EnvFrom, from)
	}
	optional := true
	for n := range h.References {
		from := v1.EnvFromSource{SecretRef: &v1.SecretEnvSource{Optional: &optional}}
		from.SecretRef.Name = fmt.Sprint("none-", n)
		first.EnvFrom = append(first.EnvFrom, from)
	}
	var sources []v1.VolumeProjection
	for n := range h.Tokens {
		sources = append(sources, v1.VolumeProjection{
			ServiceAccountToken: &v1.ServiceAccountTokenProjection{
				Audience: fmt.Sprint("audience-", n), ExpirationSeconds: new(int64(3600)),
				Path: fmt.Sprint("token-", n)}})
	}
	for range h.Files {
		projection := &v1.ConfigMapProjection{}
		projection.Name = h.Object
		sources = append(sources, v1.VolumeProjection{ConfigMap: projection})
	}
	if len(sources) > 0 {
		addVolume(pod, "many", v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{
			Sources: sources, DefaultMode: new(int32(0o644))}})
	}
	if h.TakenOver {
		addVolume(pod, "foreign", v1.VolumeSource{ISCSI: &v1.ISCSIVolumeSource{
			TargetPortal: "iscsi.test", IQN: "iqn.2026-01.test:disk"}})
	}
	h.addLongNames(pod)
	h.Storage.addTo(pod)
	if h.ProbeCommand > 0 {
		first.ReadinessProbe = &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{
			Command: []string{"long", strings.Repeat("c", h.ProbeCommand<<10)}}}}
	}
	for range h.PullSecrets {
		spec.ImagePullSecrets = append(spec.ImagePullSecrets,
			v1.LocalObjectReference{Name: pullSecretName(pod.Name)})
	}
	for n := range h.Containers {
		c := *first.DeepCopy()
		c.Name = fmt.Sprintf("%s-%d", first.Name, n)
		spec.Containers = append(spec.Containers, c)
	}
	for n := range h.Images {
		c := *first.DeepCopy()
		c.Name, c.ImagePullPolicy = fmt.Sprintf("%s-image-%d", first.Name, n), v1.PullAlways
		c.Image = fmt.Sprintf("registry.test/%s:%d", pod.Name, n)
		spec.Containers = append(spec.Containers, c)
	}
	if h.Grace > 0 {
		spec.TerminationGracePeriodSeconds = new(int64(time.Duration(h.Grace) / time.Second))
	}
}

// addLongNames adds long names to the spec of a pod. The API server does not bound their length.
func (h *Hostile) addLongNames(pod *v1.Pod) {
	first := &pod.Spec.Containers[0]
	if h.LongNames > 0 {
		name := strings.Repeat("N", h.LongNames<<10)
		first.Env = append(first.Env, v1.EnvVar{Name: name, Value: "long"})
		addVolume(pod, "long", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}})
		first.VolumeMounts[len(first.VolumeMounts)-1].MountPath = "/" + name
	}
	if h.LongImage > 0 {
		first.Image = "registry.test/" + strings.Repeat("n", h.LongImage<<10) + ":1"
	}
}

// addVolume adds a volume to a pod, and its mount to the first container.
func addVolume(pod *v1.Pod, name string, source v1.VolumeSource) {
	pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: name, VolumeSource: source})
	c := &pod.Spec.Containers[0]
	c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: name, MountPath: "/" + name})
}

// The bounds of what a plan can have, above which a run takes too long.
const (
	hostileMax   = 20_000
	doublingsMax = 18      // 16 MiB
	longMax      = 1 << 10 // a megabyte
	// statusRoomMin is what the least status of a pod needs.
	statusRoomMin = 2 << 10
)

func (h *Hostile) validate(api bool) error {
	switch {
	case !api:
		return errors.New("hostile: want a pod of the API server, this one is static")
	case max(h.Tokens, h.References, h.EnvFrom, h.Files, h.Containers, h.PullSecrets,
		h.Registries, h.Images) > hostileMax:
		return fmt.Errorf("hostile: want at most %d of anything", hostileMax)
	case max(h.LongNames, h.LongImage, h.ProbeCommand) > longMax:
		return fmt.Errorf("hostile: want names and commands of at most %d KiB", longMax)
	case h.StatusRoom != 0 && h.StatusRoom < statusRoomMin:
		return fmt.Errorf("hostile.statusRoom: want at least %d bytes, have %d", statusRoomMin,
			h.StatusRoom)
	case min(h.Tokens, h.References, h.EnvFrom, h.Files, h.Containers, h.Doublings, h.PullSecrets,
		h.Registries, h.LongNames, h.LongImage, h.ProbeCommand, h.Images) < 0 ||
		h.Doublings > doublingsMax:
		return fmt.Errorf("hostile: want 0 to %d doublings, and 0 or more of the others",
			doublingsMax)
	case cmp.Or(h.EnvFrom, h.Files) > 0 && h.Object == "":
		return errors.New("hostile.object: want the name of a ConfigMap, have none")
	}
	return h.Storage.validate()
}
