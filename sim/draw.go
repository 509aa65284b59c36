package sim

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/wire"
)

// Draw makes a plan of a scenario. It fails if a manifest of the scenario is no pod.
//
// Each concern draws from a stream of its own, so that a change of one leaves the others as they
// were. Each seed leaves whole classes of trouble out and takes the others more or less
// seriously (swarm testing): what hides behind a frequent fault is found by the seeds without it.
func Draw(s *Scenario, seed uint64) (*Plan, error) {
	d := &drawing{scenario: s, seed: seed, plan: &Plan{
		APIVersion: APIVersion, Kind: "Plan",
		Metadata: Metadata{Name: fmt.Sprintf("%s-%d", s.Metadata.Name, seed)},
		Spec: PlanSpec{
			Scenario: s.Metadata.Name, Seed: seed, Order: OrderUniform,
			Settle: s.Spec.Settle, Node: s.Spec.Node, Expect: s.Spec.Expect,
		},
	}}
	if d.stream("order").IntN(3) == 0 {
		d.plan.Spec.Order = OrderPriority
	}
	d.plan.Spec.Duration = Duration(s.Spec.Duration.draw(d.stream("duration")))
	d.configure()
	d.pods()
	d.images()
	d.faults()
	d.churn()
	d.strikes()
	d.odd()
	d.actors()
	d.requests()
	slices.SortStableFunc(d.plan.Spec.Manifests, func(a, b Change) int {
		return cmp.Compare(a.At, b.At)
	})
	err := d.read()
	if err == nil {
		err = d.plan.Validate()
	}
	if err != nil {
		return nil, fmt.Errorf("drawing seed %d of %s: %w", seed, s.Metadata.Name, err)
	}
	return d.plan, nil
}

// configure draws how the node is configured.
func (d *drawing) configure() {
	variants := d.scenario.Spec.Variants
	if len(variants) == 0 {
		return
	}
	drawn := maps.Clone(variants[d.stream("variant").IntN(len(variants))])
	for field, value := range d.plan.Spec.Node.Config { //ordered: into a map
		drawn[field] = value
	}
	d.plan.Spec.Node.Config = drawn
}

// read reads the manifests of the node's own pods.
func (d *drawing) read() error {
	d.plan.read = map[string]*v1.Pod{}
	for i := range d.plan.Spec.Pods {
		if d.plan.Spec.Pods[i].API {
			continue
		}
		text := d.plan.Spec.Pods[i].text()
		is, err := readManifest(text)
		if err != nil {
			return fmt.Errorf("spec.pods[%d].%w", i, err)
		}
		d.plan.read[string(text)] = is
	}
	return nil
}

type drawing struct {
	scenario *Scenario
	seed     uint64
	plan     *Plan
	files    []drawnFile
	bound    []PlanPod // those of the API server that nothing but their creation happens to so far
}

// drawnFile is a manifest file that nothing but its creation happens to so far.
type drawnFile struct {
	url  bool // it is an entry of the page of the manifest URL
	name string
	pod  PlanPod
}

// goes is the removal of the file.
func (f drawnFile) goes(at Duration) Change { return Change{At: at, URL: f.url, File: f.name} }

// says is the writing of a pod into the file.
func (f drawnFile) says(at Duration, pod string) Change {
	return Change{At: at, URL: f.url, File: f.name, Pod: pod}
}

func (d *drawing) stream(name string) *rand.Rand { return wire.Stream(d.seed, name) }

// weight decides whether this seed has a class of trouble at all, and how seriously.
func (d *drawing) weight(class string, always bool) float64 {
	r := d.stream("swarm " + class)
	if r.IntN(3) == 0 && !always {
		return 0
	}
	return 0.5 + r.Float64()
}

// times draws how often something of a class happens.
func (d *drawing) times(class string, c Count, always bool) int {
	n := c.draw(d.stream("times " + class))
	weighed := int(float64(n)*d.weight(class, always) + 0.5)
	if always {
		return max(weighed, c.Least)
	}
	return weighed
}

// moment draws a time within the faulty part of the run.
func (d *drawing) moment(r *rand.Rand) Duration {
	at := time.Duration(r.Int64N(int64(d.plan.Spec.Duration)))
	return Duration(max(at.Round(time.Millisecond), time.Millisecond))
}

// pods draws the pods, what they do and when their manifests are written: most of them are there
// when the agent starts.
func (d *drawing) pods() {
	for i := range d.scenario.Spec.Pods {
		group := &d.scenario.Spec.Pods[i]
		count := group.Count.draw(d.stream(fmt.Sprint("group ", i)))
		for n := range count {
			name := nameOf(group.Manifest)
			if group.Count.Most > 1 {
				name = fmt.Sprintf("%s-%d", name, n)
			}
			r := d.stream("pod " + name)
			pod := PlanPod{Name: name, API: group.API, Manifest: named(group.Manifest, name)}
			if group.Count.Most > 1 {
				renumber(pod.Manifest, n)
			}
			for k := range group.Behaviour {
				does := group.Behaviour[k].draw(r)
				does.Writes = d.writes(name, &group.Behaviour[k])
				does.Answers = d.answers(name, &group.Behaviour[k])
				pod.Behaviours = append(pod.Behaviours, does)
			}
			change := Change{URL: group.URL, File: name + ".yaml", Pod: name}
			if r.IntN(4) == 0 {
				change.At = Duration(time.Duration(r.Int64N(int64(10 * time.Second))).
					Round(time.Millisecond))
			}
			if group.Comes != nil {
				change.At = min(Duration(group.Comes.draw(r)), d.plan.Spec.Duration)
			}
			d.plan.Spec.Pods = append(d.plan.Spec.Pods, pod)
			if pod.API {
				d.act(Act{At: change.At, Do: ActCreate, Pod: name, Rash: group.Rash})
				d.bound = append(d.bound, pod)
				continue
			}
			d.plan.Spec.Manifests = append(d.plan.Spec.Manifests, change)
			d.files = append(d.files, drawnFile{group.URL, change.File, pod})
		}
	}
}

// processesMax is how many runs of a container are drawn one by one.
const processesMax = 12

func (b *BehaviourRange) draw(r *rand.Rand) Behaviour {
	drawn := Behaviour{
		Container: b.Container, StopTakes: Duration(b.StopTakes.draw(r)),
		IgnoresTerm: b.IgnoresTerm.chance(r), HandlesTerm: b.HandlesTerm.chance(r),
	}
	if b.LogKiB != nil {
		drawn.LogKiB = b.LogKiB.draw(r)
	}
	if b.Runs == nil {
		return drawn
	}
	times := processesMax
	if b.Times != nil {
		times = b.Times.draw(r)
	}
	for range min(times, processesMax) {
		run := ProcessRun{Runs: Duration(max(b.Runs.draw(r), time.Millisecond))}
		if len(b.ExitCodes) > 0 {
			run.ExitCode = b.ExitCodes[r.IntN(len(b.ExitCodes))]
		}
		run.OOM = b.OOM.chance(r)
		if b.MessageBytes != nil {
			run.MessageBytes = b.MessageBytes.draw(r)
		}
		drawn.Processes = append(drawn.Processes, run)
	}
	if b.Times != nil {
		drawn.Processes = append(drawn.Processes, ProcessRun{})
	}
	return drawn
}

func (d *drawing) images() {
	r := d.stream("images")
	spec := &d.scenario.Spec.Images
	d.plan.Spec.ImageUsers = spec.Users
	weight := d.weight("images", false)
	var refs []string
	for i := range d.plan.Spec.Pods {
		refs = append(refs, imagesOf(d.plan.Spec.Pods[i].Manifest)...)
	}
	slices.Sort(refs)
	for _, ref := range slices.Compact(refs) {
		absent, takes, failures := spec.Absent.chance(r), spec.PullTakes.draw(r), 0
		if spec.Failures.Most > 0 {
			failures = spec.Failures.draw(r)
		}
		stuck := spec.Stuck.Most > 0 && spec.Stuck.chance(r)
		if absent && weight > 0 && !slices.Contains(spec.Present, ref) {
			d.plan.Spec.Images = append(d.plan.Spec.Images, PlanImage{
				Ref: ref, PullTakes: Duration(takes), Failures: failures, Stuck: stuck,
			})
		}
	}
}

func (d *drawing) faults() {
	for i := range d.scenario.Spec.Faults {
		f := &d.scenario.Spec.Faults[i]
		class := fmt.Sprintf("%s-%d", f.Class, i)
		r := d.stream("fault " + class)
		weight := d.weight(class, f.Always)
		for n := range d.times(class, f.Windows, f.Always) {
			w := Window{
				ID: fmt.Sprintf("%s-%d", class, n), At: d.moment(r), For: Duration(f.For.draw(r)),
				Class: f.Class, Calls: f.Calls, Takes: f.Takes, Path: f.Path,
				Probability: min(1, float64(int(f.Probability.draw(r)*weight*1000))/1000),
			}
			if f.At != nil {
				w.At = Duration(f.At.draw(r))
			}
			d.plan.Spec.Faults = append(d.plan.Spec.Faults, w)
		}
	}
}

func (d *drawing) strikes() {
	s, spec := &d.scenario.Spec.Strikes, &d.plan.Spec
	r := d.stream("agent kills")
	for range d.times("agent kills", s.Agent, s.Always) {
		kill := AgentKill{At: d.moment(r), Down: Duration(s.AgentDown.draw(r))}
		if effects := 1 + r.IntN(effectsPerPod*len(spec.Pods)+20); r.IntN(2) == 0 {
			kill.At, kill.AfterEffects = 0, effects
		}
		spec.AgentKills = append(spec.AgentKills, kill)
	}
	r = d.stream("runtime restarts")
	for range d.times("runtime restarts", s.Runtime, s.Always) {
		spec.RuntimeEnds = append(spec.RuntimeEnds,
			RuntimeEnd{At: d.moment(r), Down: Duration(s.RuntimeDown.draw(r))})
	}
	r = d.stream("reboots")
	for range d.times("reboots", s.Reboots, s.Always) {
		spec.Reboots = append(spec.Reboots,
			Reboot{At: d.moment(r), Down: Duration(s.RebootTakes.draw(r))})
	}
	r = d.stream("container kills")
	for range d.times("container kills", s.Containers, s.Always) {
		pod := spec.Pods[r.IntN(len(spec.Pods))]
		names := containersOf(pod.Manifest)
		spec.Kills = append(spec.Kills, Kill{
			At: d.moment(r), Pod: pod.Name, Container: names[r.IntN(len(names))],
			ExitCode: []int32{137, 137, 143, 1, 0}[r.IntN(5)],
		})
	}
	r = d.stream("sandbox kills")
	for range d.times("sandbox kills", s.Sandboxes, s.Always) {
		spec.Sandboxes = append(spec.Sandboxes,
			SandboxKill{At: d.moment(r), Pod: spec.Pods[r.IntN(len(spec.Pods))].Name})
	}
}

// effectsPerPod is about how many effects it takes to bring a pod up: agents are killed while
// they do it more often than while all is quiet.
const effectsPerPod = 14

// nameOf is metadata.name of a manifest; empty if it has none, which decoding it will tell.
func nameOf(manifest map[string]any) string {
	meta, _ := manifest["metadata"].(map[string]any)
	name, _ := meta["name"].(string)
	return name
}

// named is a copy of a manifest with another name.
func named(manifest map[string]any, name string) map[string]any {
	c := clone(manifest)
	if meta, ok := c["metadata"].(map[string]any); ok {
		meta["name"] = name
	}
	return c
}

// renumber has the UID of a manifest, if it has one, end in a number.
func renumber(manifest map[string]any, n int) {
	meta, _ := manifest["metadata"].(map[string]any)
	if uid, _ := meta["uid"].(string); len(uid) > 2 {
		meta["uid"] = fmt.Sprintf("%s%02d", uid[:len(uid)-2], n)
	}
}

func clone(m map[string]any) map[string]any {
	var c map[string]any
	data, err := json.Marshal(m)
	if err == nil {
		err = json.Unmarshal(data, &c)
	}
	if err != nil {
		panic("sim: a manifest cannot be copied: " + err.Error())
	}
	return c
}

// containerFields are the containers of a manifest, init containers first.
func containerFields(manifest map[string]any) []map[string]any {
	spec, _ := manifest["spec"].(map[string]any)
	var all []map[string]any
	for _, field := range []string{"initContainers", "containers"} {
		list, _ := spec[field].([]any)
		for _, item := range list {
			if c, ok := item.(map[string]any); ok {
				all = append(all, c)
			}
		}
	}
	return all
}

func containersOf(manifest map[string]any) []string {
	var names []string
	for _, c := range containerFields(manifest) {
		names = append(names, fmt.Sprint(c["name"]))
	}
	return names
}

func imagesOf(manifest map[string]any) []string {
	var refs []string
	for _, c := range containerFields(manifest) {
		ref := fmt.Sprint(c["image"])
		if !strings.Contains(ref, "@") && !strings.Contains(lastPart(ref), ":") {
			ref += ":latest"
		}
		refs = append(refs, ref)
	}
	return append(refs, imageVolumesOf(manifest)...)
}

// imageVolumesOf are the images that the pod of a manifest mounts.
func imageVolumesOf(manifest map[string]any) []string {
	spec, _ := manifest["spec"].(map[string]any)
	volumes, _ := spec["volumes"].([]any)
	var refs []string
	for _, v := range volumes {
		volume, _ := v.(map[string]any)
		if source, is := volume["image"].(map[string]any); is {
			refs = append(refs, fmt.Sprint(source["reference"]))
		}
	}
	return refs
}

// lastPart is the last part of an image's name.
func lastPart(ref string) string { return ref[strings.LastIndexByte(ref, '/')+1:] }
