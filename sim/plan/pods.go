package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/core/config"
	"seedlet.dev/core/document"
	"seedlet.dev/core/manifest"
	"seedlet.dev/core/pod"
	"seedlet.dev/core/sysctl"
)

// Pod is one manifest and the behaviour of its containers.
type Pod struct {
	Name       string         `json:"name"`          // by which manifest changes and acts refer to it
	API        bool           `json:"api,omitempty"` // a pod of the API server, not a static pod
	Manifest   map[string]any `json:"manifest"`
	Behaviours []Behaviour    `json:"behaviours,omitempty"`
	Hostile    *Hostile       `json:"hostile,omitempty"` // nil: an ordinary pod
	// Panics is how many responses about the pod are of another kind than the agent has asked for,
	// each of which makes it panic.
	Panics int `json:"panics,omitempty"`
}

// panicsMax bounds the panics over one pod: the agent is down for a while after each.
const panicsMax = 100

// PodGroup is a number of pods of one manifest. If the group may have more than one, "-n" is
// appended to the name of copy n, and its UID, if it has one, ends in n.
type PodGroup struct {
	Count     Count            `json:"count,omitempty"` // absent: one
	API       bool             `json:"api,omitempty"`   // of the API server, not static
	URL       bool             `json:"url,omitempty"`   // of the manifest URL, not of a file
	Rash      bool             `json:"rash,omitempty"`  // as in Act
	Manifest  map[string]any   `json:"manifest,omitempty"`
	File      string           `json:"file,omitempty"` // instead, relative to the scenario
	Behaviour []BehaviourRange `json:"behaviour,omitempty"`
	Hostile   *HostileRange    `json:"hostile,omitempty"` // absent: ordinary pods
	// AppearsAt is when the pods are created. Absent: most exist from the start of the run.
	AppearsAt *Span `json:"comes,omitempty"`
	Panics    Count `json:"panics,omitempty"` // as in Pod
}

func (g *PodGroup) loadManifest(base string, dir fs.FS) error {
	if g.Count == (Count{}) {
		g.Count = Count{1, 1}
	}
	if (g.File == "") == (g.Manifest == nil) {
		return errors.New(": want either manifest or file")
	}
	if g.File == "" {
		return nil
	}
	data, err := fs.ReadFile(dir, path.Join(base, g.File))
	if err != nil {
		return fmt.Errorf(".file: %w", err)
	}
	return decode(g.File, data, "Pod", &g.Manifest)
}

// addPods generates the pods, the behaviour of their containers, and their creation. Most of them
// exist when the agent starts.
func (g *generator) addPods() {
	groups, objects := g.drawPool()
	g.objects = append(slices.Clone(g.scenario.Spec.Objects), objects...)
	groups = append(slices.Clone(g.scenario.Spec.Pods), groups...)
	for i := range groups {
		group := &groups[i]
		count := group.Count.draw(g.stream(fmt.Sprint("group ", i)))
		for n := range count {
			name := ManifestName(group.Manifest)
			if group.Count.Most > 1 {
				name = fmt.Sprintf("%s-%d", name, n)
			}
			r := g.stream("pod " + name)
			pod := Pod{Name: name, API: group.API, Manifest: renamedManifest(group.Manifest, name),
				Hostile: g.hostile(name, group.Hostile),
				Panics:  group.Panics.draw(g.stream("panics " + name))}
			if group.Count.Most > 1 {
				numberUID(pod.Manifest, n)
			}
			for k := range group.Behaviour {
				behaviour := group.Behaviour[k].draw(r)
				behaviour.Writes = g.fileWrites(name, &group.Behaviour[k])
				behaviour.Loads = g.loads(name, &group.Behaviour[k])
				behaviour.Responses = g.responses(name, &group.Behaviour[k])
				pod.Behaviours = append(pod.Behaviours, behaviour)
			}
			g.addPod(pod, group, r)
		}
	}
}

// addPod adds a pod, and its creation at the API server, in a manifest file or at the manifest URL.
func (g *generator) addPod(pod Pod, group *PodGroup, r *rand.Rand) {
	var at Duration
	if r.IntN(4) == 0 {
		at = Duration(time.Duration(r.Int64N(int64(10 * time.Second))).
			Round(time.Millisecond))
	}
	if group.AppearsAt != nil {
		at = min(Duration(group.AppearsAt.draw(r)), g.plan.Spec.Duration)
	}
	g.plan.Spec.Pods = append(g.plan.Spec.Pods, pod)
	if pod.API {
		g.addAct(at, Act{Verb: VerbCreate, Pod: pod.Name, Rash: group.Rash})
		if pod.Hostile != nil && pod.Hostile.TakenOver {
			g.addAct(at, Act{Verb: VerbPatch, Pod: pod.Name, Status: true, Patch: takenOverStatus()})
		}
		if !g.addHostileDeletion(&pod, group, at) {
			g.untouchedPods = append(g.untouchedPods, pod)
		}
		return
	}
	file := manifestFile{group.URL, pod.Name + ".yaml", pod}
	g.addChange(at, file.write(pod.Name))
	g.untouchedFiles = append(g.untouchedFiles, file)
}

func (s *Spec) validatePods(node *kubeletconfig.KubeletConfiguration,
	decoded map[string]*v1.Pod) error {
	names := map[string]bool{}
	for i := range s.Pods {
		p := &s.Pods[i]
		if p.Name == "" || names[p.Name] {
			return fmt.Errorf("spec.pods[%d].name: want a name of its own, have %q", i, p.Name)
		}
		names[p.Name] = true
		if err := p.validate(node, decoded); err != nil {
			return fmt.Errorf("spec.pods[%d].%w", i, err)
		}
	}
	return nil
}

// validate checks that the agent can run the pod. A pod that the agent rejects never reaches the
// state that its spec demands, so such a plan would always fail.
func (p *Pod) validate(node *kubeletconfig.KubeletConfiguration,
	decoded map[string]*v1.Pod) error {
	for i := range p.Behaviours {
		for k := range p.Behaviours[i].Writes {
			if err := p.Behaviours[i].Writes[k].validate(); err != nil {
				return fmt.Errorf("behaviours[%d].writes[%d]: %w", i, k, err)
			}
		}
		for k := range p.Behaviours[i].Loads {
			if err := p.Behaviours[i].Loads[k].validate(); err != nil {
				return fmt.Errorf("behaviours[%d].loads[%d]: %w", i, k, err)
			}
		}
		for k := range p.Behaviours[i].Responses {
			if err := p.Behaviours[i].Responses[k].validate(); err != nil {
				return fmt.Errorf("behaviours[%d].answers[%d].%w", i, k, err)
			}
		}
	}
	if p.Panics < 0 || p.Panics > panicsMax {
		return fmt.Errorf("panics: want 0 to %d, have %d", panicsMax, p.Panics)
	}
	if p.Hostile != nil {
		if err := p.Hostile.validate(p.API); err != nil {
			return err
		}
	}
	if p.API {
		return p.validateAPIPod(node)
	}
	text := p.ManifestJSON()
	static := decoded[string(text)]
	if static == nil {
		var err error
		if static, err = decodeManifest(text); err != nil {
			return err
		}
	}
	return validateSupported(static, node)
}

// validateAPIPod checks that an API server takes a pod, unless it is hostile, and that the agent
// can run it.
func (p *Pod) validateAPIPod(node *kubeletconfig.KubeletConfiguration) error {
	bound, err := p.BoundPod()
	switch {
	case err != nil:
		return fmt.Errorf("manifest: %w", err)
	case bound.Name == "" || len(bound.Spec.Containers) == 0:
		return errors.New("manifest: want a name and a container")
	case p.Hostile != nil && p.Hostile.TakenOver:
		return nil
	case p.Hostile == nil:
		if problems := manifest.ValidateAPIPod(bound); len(problems) > 0 {
			return fmt.Errorf("manifest: %w", problems[0])
		}
	}
	return validateSupported(bound, node)
}

// validateSupported checks that the agent supports every feature of a pod, and admits its sysctls.
func validateSupported(p *v1.Pod, node *kubeletconfig.KubeletConfiguration) error {
	if missing := pod.UnsupportedFields(p,
		config.RestartAllContainersEnabled(node)); len(missing) > 0 {
		return fmt.Errorf("manifest: the agent does not support %s yet",
			strings.Join(missing, ", "))
	}
	if why := sysctl.ForbiddenMessage(&p.Spec, node.AllowedUnsafeSysctls); why != "" {
		return fmt.Errorf("manifest: the agent refuses it: %s", why)
	}
	return nil
}

// decodeManifest decodes the manifest of a static pod. Warnings are errors.
func decodeManifest(text []byte) (*v1.Pod, error) {
	static, warnings, err := manifest.DecodeText("manifest", text, NodeName)
	switch {
	case err != nil:
		return nil, err
	case static == nil:
		return nil, errors.New("manifest: it is empty")
	case len(warnings) > 0:
		return nil, errors.New(warnings[0])
	}
	return static, nil
}

// ManifestJSON returns the content of the pod's manifest file.
func (p *Pod) ManifestJSON() []byte {
	data, err := json.MarshalIndent(p.Manifest, "", "  ")
	if err != nil {
		panic("plan: cannot encode a manifest: " + err.Error())
	}
	return append(data, '\n')
}

// BoundPod returns the pod as a client of the API server creates it: bound to this node, with
// defaults set.
func (p *Pod) BoundPod() (*v1.Pod, error) {
	bound := &v1.Pod{}
	unknown, err := document.Decode(p.ManifestJSON(), bound)
	switch {
	case err != nil:
		return nil, err
	case len(unknown) > 0:
		return nil, fmt.Errorf("unknown field %s", strings.Join(unknown, ", "))
	}
	if bound.Namespace == "" {
		bound.Namespace = metav1.NamespaceDefault
	}
	bound.Spec.NodeName = NodeName
	if p.Hostile != nil && len(bound.Spec.Containers) > 0 {
		p.Hostile.addTo(bound)
	}
	manifest.SetDefaults(bound)
	return bound, nil
}

// BehaviourOf returns the behaviour of a container; nil if the pod has none for it. The copies of a
// hostile pod's container behave as that container.
func (p *Pod) BehaviourOf(container string) *Behaviour {
	if p.Hostile != nil && !slices.Contains(containerNames(p.Manifest), container) {
		container, _, _ = strings.Cut(container, "-")
	}
	i := slices.IndexFunc(p.Behaviours, func(b Behaviour) bool { return b.Container == container })
	if i < 0 {
		return nil
	}
	return &p.Behaviours[i]
}
