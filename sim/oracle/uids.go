package oracle

import (
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

// uids fires when two pods that have one UID, one after the other, are mixed up (upstream
// #104648): a manifest may go and come back with it, or another name may be given it. Nothing of
// the one before counts for the one after.
type uids struct{}

func (*uids) entry() Entry {
	return Entry{"uid-reuse", "A UID that is given to another name is that of one pod at a time: " +
		"the new one starts when nothing of the old one runs, and neither is shown with a " +
		"container of the other."}
}

func (*uids) fact(w *world, f *truth.Fact) *finding {
	p := w.pods[f.PodUID]
	if f.Kind != truth.ContainerStarted || p == nil {
		return nil
	}
	for _, c := range p.containers {
		if c.state == running && c.full != f.PodNamespace+"/"+f.PodName {
			return &finding{message: fmt.Sprintf("container %s of pod %s/%s was started while %s, "+
				"which was made for %s, still runs", f.Container, f.PodNamespace, f.PodName, c,
				c.full)}
		}
	}
	return nil
}

func (*uids) answer(w *world, _ time.Time, pods []*v1.Pod) *finding {
	for _, shown := range pods {
		for _, list := range statuses(shown) {
			for i := range list {
				c := w.shownRun(&list[i])
				switch {
				case c == nil:
				case !isNamed(shown, c.full):
					return &finding{message: fmt.Sprintf("pod %s/%s is shown with %s, which was "+
						"made for %s", shown.Namespace, shown.Name, c, c.full)}
				case c.pod.uid != string(shown.UID):
					return &finding{message: fmt.Sprintf("pod %s/%s (uid %s) is shown with %s",
						shown.Namespace, shown.Name, shown.UID, c)}
				}
			}
		}
	}
	return nil
}

func isNamed(pod *v1.Pod, full string) bool {
	namespace, name, _ := strings.Cut(full, "/")
	return pod.Namespace == namespace && pod.Name == name
}

// readWithin is how long the agent may take to read a changed manifest when no fault keeps it
// from that: its period of 20 s, and the time to read.
const readWithin = 30 * time.Second

// ofThisWish says that a container was made for the manifest as it has been since it was last
// written, so that nothing that was the matter with the pod before is a reason to end it.
func (w *world) ofThisWish(c *container) bool {
	p := c.pod
	within := readWithin
	if p.wishedAt.Before(w.started) && c.madeAt.After(w.started) {
		within += w.started.Sub(p.wishedAt)
	}
	if w.struckAny(p.wishedAt, c.madeAt, "ReadFiles", "FetchManifest", "FileChanged",
		"CreateContainer") {
		within = max(within, noticedAfter)
	}
	return p.spec != nil && c.madeAt.Sub(p.wishedAt) > within
}
