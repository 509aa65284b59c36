package parity

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/world"
)

// watchCases are rules for watches.
var watchCases = []apiCase{
	{"a watch delivers a list, then all changes in order", watchInOrder},
	{"a watch of one object covers no other object", watchOne},
	{"a watch of pods covers the pods of the node", watchPods},
	{"an empty list is delivered", watchEmptyList},
	{"the list of a watch is current", watchListIsCurrent},
	{"a forbidden watch fails, and lists once it is allowed", watchForbidden},
	{"an ended watch delivers no more events", watchEnds},
	{"a watch skips no change", watchLosesNoChange},
}

// nextWatchID returns an unused watch ID. Each case has a range of 100 IDs.
func (c *cluster) nextWatchID() world.WatchID {
	var number world.WatchID
	if _, err := fmt.Sscanf(c.name, "parity-%d", &number); err != nil {
		panic(err)
	}
	c.watchCount++
	return number*100 + c.watchCount
}

// watch is a watch of one case.
type watch struct {
	c  *cluster
	id world.WatchID
}

func (c *cluster) watch(r world.Resource, namespace, name string) *watch {
	w := &watch{c, c.nextWatchID()}
	c.w.Send(&world.WatchObjects{Watch: w.id,
		WatchTarget: world.WatchTarget{Resource: r, Namespace: namespace, Name: name}})
	return w
}

// events returns the events of the watch so far.
func (w *watch) events() []any {
	var all []any
	for _, body := range w.c.w.WatchEvents() {
		var id world.WatchID
		switch body := body.(type) {
		case *world.ObjectsListed:
			id = body.Watch
		case *world.ObjectChanged:
			id = body.Watch
		case *world.ObjectGone:
			id = body.Watch
		case *world.WatchFailing:
			id = body.Watch
		}
		if id == w.id {
			all = append(all, body)
		}
	}
	return all
}

// summary returns the events in the form "listed a b", "changed a", "gone a", "failing Refused".
func (w *watch) summary() []string {
	var all []string
	name := func(o *world.Object) string {
		_, meta := o.Meta()
		if meta == nil {
			return "nothing"
		}
		if step := meta.GetLabels()["step"]; step != "" {
			return meta.GetName() + "." + step
		}
		return meta.GetName()
	}
	for _, body := range w.events() {
		text := ""
		switch body := body.(type) {
		case *world.ObjectsListed:
			text = "listed"
			for i := range body.Objects {
				text += " " + name(&body.Objects[i])
			}
		case *world.ObjectChanged:
			text = "changed " + name(&body.Object)
		case *world.ObjectGone:
			text = "gone " + name(&body.Object)
		case *world.WatchFailing:
			text = "failing " + string(body.Err.Kind)
		}
		all = append(all, text)
	}
	return all
}

// expect waits until the watch has delivered exactly these events.
func (w *watch) expect(want ...string) {
	w.c.Helper()
	w.c.eventually(fmt.Sprintf("the watch delivers %q", want), func() bool {
		got := w.summary()
		if len(got) > len(want) {
			w.c.Fatalf("got %q, want %q", got, want)
		}
		return fmt.Sprint(got) == fmt.Sprint(want)
	})
}

func (c *cluster) setStep(name string, step int) *world.PatchObject {
	p := c.patch(world.ResourcePods, `{"metadata":{"labels":{"step":"%d"}}}`, step)
	p.Name = name
	return p
}

// withSuffix appends a suffix to the name of a pod.
func (c *cluster) withSuffix(suffix string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Name += suffix }
}

func watchInOrder(c *cluster) {
	c.asAdmin(c.newPod())
	w := c.watch(world.ResourcePods, c.w.Namespace(), "")
	w.expect("listed " + c.name)
	c.asAdmin(c.newPod(c.withSuffix("-b")))
	c.asAdmin(c.setStep(c.name, 1))
	c.asAdmin(c.setStep(c.name, 2))
	c.asAdmin(c.deleteObject(world.ResourcePods, c.name+"-b", nil))
	w.expect("listed "+c.name, "changed "+c.name+"-b", "changed "+c.name+".1", "changed "+c.name+".2",
		"changed "+c.name+"-b")
	c.asNode(c.deleteObject(world.ResourcePods, c.name+"-b", new(int64(0))))
	w.expect("listed "+c.name, "changed "+c.name+"-b", "changed "+c.name+".1", "changed "+c.name+".2",
		"changed "+c.name+"-b", "changed "+c.name+"-b", "gone "+c.name+"-b")
	events := w.events()
	last := events[len(events)-1].(*world.ObjectGone).Object.Pod
	c.check(last.DeletionTimestamp != nil && last.UID != "", "last %v", last.ObjectMeta)
	changed := events[3].(*world.ObjectChanged).Object.Pod
	c.check(changed.ResourceVersion != "" && changed.Spec.Containers[0].Name == "app", "%v", changed)
}

func watchOne(c *cluster) {
	c.asAdmin(c.newPod(c.withSuffix("-b")))
	w := c.watch(world.ResourcePods, c.w.Namespace(), c.name)
	w.expect("listed")
	c.asAdmin(c.newPod())
	c.asAdmin(c.setStep(c.name+"-b", 1))
	c.asAdmin(c.setStep(c.name, 1))
	w.expect("listed", "changed "+c.name, "changed "+c.name+".1")
}

func watchPods(c *cluster) {
	elsewhere := func(p *v1.Pod) { p.Spec.NodeName = "elsewhere" }
	c.asAdmin(c.newPod(c.withSuffix("-b"), elsewhere))
	w := c.watch(world.ResourcePods, "", "")
	w.expect("listed")
	c.asAdmin(c.newPod(c.withSuffix("-c"), elsewhere))
	c.asAdmin(c.newPod())
	w.expect("listed", "changed "+c.name)
}

func watchEmptyList(c *cluster) {
	c.watch(world.ResourceRuntimeClasses, "", "").expect("listed")
	c.watch(world.ResourceServices, c.w.Namespace(), "").expect("listed")
}

func watchListIsCurrent(c *cluster) {
	c.asAdmin(c.newPod())
	for step := range 10 {
		c.asAdmin(c.setStep(c.name, step))
		w := c.watch(world.ResourcePods, c.w.Namespace(), "")
		w.expect(fmt.Sprintf("listed %s.%d", c.name, step))
		c.w.Send(&world.UnwatchObjects{Watch: w.id})
	}
}

func watchForbidden(c *cluster) {
	c.asAdmin(c.newConfigMap("a"))
	all := c.watch(world.ResourceConfigMaps, c.w.Namespace(), "")
	all.expect("failing Refused")
	w := c.watch(world.ResourceConfigMaps, c.w.Namespace(), c.name)
	w.expect("failing Refused")
	c.asAdmin(c.newPod(func(p *v1.Pod) {
		p.Spec.Containers[0].EnvFrom = []v1.EnvFromSource{{ConfigMapRef: &v1.ConfigMapEnvSource{
			LocalObjectReference: v1.LocalObjectReference{Name: c.name}}}}
	}))
	w.expect("failing Refused", "listed "+c.name)
	c.asAdmin(c.deleteObject(world.ResourceConfigMaps, c.name, nil))
	w.expect("failing Refused", "listed "+c.name, "gone "+c.name)
	c.w.Send(&world.UnwatchObjects{Watch: all.id})
	c.w.Send(&world.UnwatchObjects{Watch: w.id})
}

func watchEnds(c *cluster) {
	w := c.watch(world.ResourcePods, c.w.Namespace(), "")
	w.expect("listed")
	c.w.Send(&world.UnwatchObjects{Watch: w.id})
	other := c.watch(world.ResourcePods, c.w.Namespace(), "")
	other.expect("listed")
	c.asAdmin(c.newPod())
	other.expect("listed", "changed "+c.name)
	w.expect("listed")
}

func watchLosesNoChange(c *cluster) {
	const steps = 50
	w := c.watch(world.ResourcePods, c.w.Namespace(), c.name)
	want := []string{"listed", "changed " + c.name}
	w.expect(want[0])
	c.asAdmin(c.newPod())
	for step := range steps {
		c.asAdmin(c.setStep(c.name, step))
		want = append(want, fmt.Sprintf("changed %s.%d", c.name, step))
	}
	w.expect(want...)
}
