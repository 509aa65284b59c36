package parity

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/world"
)

// watchCases are about watches.
var watchCases = []apiCase{
	{"a watch tells what is there, then what changes, in order", watchInOrder},
	{"a watch of one object tells of no other", watchOne},
	{"a watch of pods tells of those of the node", watchPods},
	{"an empty list is told", watchNothing},
	{"what was changed before a watch began is in its list", watchIsNew},
	{"a watch that is not permitted is told to fail, and lists once it is", watchRefused},
	{"a watch that has ended tells nothing more", watchEnds},
	{"of many changes none is left out", watchMany},
}

// watchID is the next id of a watch. A suite has few enough that cases can have a hundred each.
func (c *cluster) watchID() world.WatchID {
	var number world.WatchID
	if _, err := fmt.Sscanf(c.name, "parity-%d", &number); err != nil {
		panic(err)
	}
	c.ids++
	return number*100 + c.ids
}

// watch is a watch of a case.
type watch struct {
	c  *cluster
	id world.WatchID
}

func (c *cluster) watch(r world.Resource, namespace, name string) *watch {
	w := &watch{c, c.watchID()}
	c.w.Tell(&world.WatchObjects{Watch: w.id,
		Watched: world.Watched{Resource: r, Namespace: namespace, Name: name}})
	return w
}

// told is what the watch has told until now.
func (w *watch) told() []any {
	var all []any
	for _, body := range w.c.w.Told() {
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

// says is what was told, in short: "listed a b", "changed a", "gone a", "failing Refused".
func (w *watch) says() []string {
	var all []string
	name := func(o *world.Object) string {
		_, meta := o.Get()
		if meta == nil {
			return "nothing"
		}
		if step := meta.GetLabels()["step"]; step != "" {
			return meta.GetName() + "." + step
		}
		return meta.GetName()
	}
	for _, body := range w.told() {
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

// tells waits until a watch has told just this.
func (w *watch) tells(want ...string) {
	w.c.Helper()
	w.c.soonIs(fmt.Sprintf("a watch tells %q", want), func() bool {
		said := w.says()
		if len(said) > len(want) {
			w.c.Fatalf("told %q, want %q", said, want)
		}
		return fmt.Sprint(said) == fmt.Sprint(want)
	})
}

func (c *cluster) step(name string, step int) *world.PatchObject {
	p := c.change(world.ResourcePods, `{"metadata":{"labels":{"step":"%d"}}}`, step)
	p.Name = name
	return p
}

// as is a pod of the case with another name.
func (c *cluster) as(suffix string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Name += suffix }
}

func watchInOrder(c *cluster) {
	c.admin(c.pod())
	w := c.watch(world.ResourcePods, c.w.Namespace(), "")
	w.tells("listed " + c.name)
	c.admin(c.pod(c.as("-b")))
	c.admin(c.step(c.name, 1))
	c.admin(c.step(c.name, 2))
	c.admin(c.deletion(world.ResourcePods, c.name+"-b", nil))
	w.tells("listed "+c.name, "changed "+c.name+"-b", "changed "+c.name+".1", "changed "+c.name+".2",
		"changed "+c.name+"-b")
	c.node(c.deletion(world.ResourcePods, c.name+"-b", new(int64(0))))
	w.tells("listed "+c.name, "changed "+c.name+"-b", "changed "+c.name+".1", "changed "+c.name+".2",
		"changed "+c.name+"-b", "changed "+c.name+"-b", "gone "+c.name+"-b")
	told := w.told()
	last := told[len(told)-1].(*world.ObjectGone).Object.Pod
	c.check(last.DeletionTimestamp != nil && last.UID != "", "last %v", last.ObjectMeta)
	changed := told[3].(*world.ObjectChanged).Object.Pod
	c.check(changed.ResourceVersion != "" && changed.Spec.Containers[0].Name == "app", "%v", changed)
}

func watchOne(c *cluster) {
	c.admin(c.pod(c.as("-b")))
	w := c.watch(world.ResourcePods, c.w.Namespace(), c.name)
	w.tells("listed")
	c.admin(c.pod())
	c.admin(c.step(c.name+"-b", 1))
	c.admin(c.step(c.name, 1))
	w.tells("listed", "changed "+c.name, "changed "+c.name+".1")
}

func watchPods(c *cluster) {
	elsewhere := func(p *v1.Pod) { p.Spec.NodeName = "elsewhere" }
	c.admin(c.pod(c.as("-b"), elsewhere))
	w := c.watch(world.ResourcePods, "", "")
	w.tells("listed")
	c.admin(c.pod(c.as("-c"), elsewhere))
	c.admin(c.pod())
	w.tells("listed", "changed "+c.name)
}

func watchNothing(c *cluster) {
	c.watch(world.ResourceRuntimeClasses, "", "").tells("listed")
	c.watch(world.ResourceServices, c.w.Namespace(), "").tells("listed")
}

func watchIsNew(c *cluster) {
	c.admin(c.pod())
	for step := range 10 {
		c.admin(c.step(c.name, step))
		w := c.watch(world.ResourcePods, c.w.Namespace(), "")
		w.tells(fmt.Sprintf("listed %s.%d", c.name, step))
		c.w.Tell(&world.UnwatchObjects{Watch: w.id})
	}
}

func watchRefused(c *cluster) {
	c.admin(c.config("a"))
	all := c.watch(world.ResourceConfigMaps, c.w.Namespace(), "")
	all.tells("failing Refused")
	w := c.watch(world.ResourceConfigMaps, c.w.Namespace(), c.name)
	w.tells("failing Refused")
	c.admin(c.pod(func(p *v1.Pod) {
		p.Spec.Containers[0].EnvFrom = []v1.EnvFromSource{{ConfigMapRef: &v1.ConfigMapEnvSource{
			LocalObjectReference: v1.LocalObjectReference{Name: c.name}}}}
	}))
	w.tells("failing Refused", "listed "+c.name)
	c.admin(c.deletion(world.ResourceConfigMaps, c.name, nil))
	w.tells("failing Refused", "listed "+c.name, "gone "+c.name)
	c.w.Tell(&world.UnwatchObjects{Watch: all.id})
	c.w.Tell(&world.UnwatchObjects{Watch: w.id})
}

func watchEnds(c *cluster) {
	w := c.watch(world.ResourcePods, c.w.Namespace(), "")
	w.tells("listed")
	c.w.Tell(&world.UnwatchObjects{Watch: w.id})
	other := c.watch(world.ResourcePods, c.w.Namespace(), "")
	other.tells("listed")
	c.admin(c.pod())
	other.tells("listed", "changed "+c.name)
	w.tells("listed")
}

func watchMany(c *cluster) {
	const steps = 50
	w := c.watch(world.ResourcePods, c.w.Namespace(), c.name)
	want := []string{"listed", "changed " + c.name}
	w.tells(want[0])
	c.admin(c.pod())
	for step := range steps {
		c.admin(c.step(c.name, step))
		want = append(want, fmt.Sprintf("changed %s.%d", c.name, step))
	}
	w.tells(want...)
}
