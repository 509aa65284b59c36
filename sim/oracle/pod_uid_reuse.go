package oracle

import (
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

// uidReuse fires when two pods that have one UID, one after the other, are mixed up (upstream
// #104648). A manifest may be removed and come back with its UID, or another name may be given
// the UID.
type uidReuse struct{}

func (*uidReuse) describe() Entry {
	return Entry{"uid-reuse", "When a UID is given to another name, the new pod starts only " +
		"when no container of the old one runs, and neither is served with a container of the " +
		"other."}
}

func (*uidReuse) checkFact(m *model, f *truth.Fact) *finding {
	p := m.pods[f.PodUID]
	if f.Kind != truth.ContainerStarted || p == nil {
		return nil
	}
	for _, c := range p.containers {
		if c.state == running && c.podFullName != f.PodNamespace+"/"+f.PodName {
			return findingf("container %s of pod %s/%s was started while %s, "+
				"which was created for %s, still runs", f.Container, f.PodNamespace, f.PodName, c,
				c.podFullName)
		}
	}
	return nil
}

func (*uidReuse) checkServed(m *model, _ time.Time, pods []*v1.Pod) *finding {
	for _, served := range pods {
		for _, list := range containerStatuses(served) {
			for i := range list {
				c := m.servedRun(&list[i])
				switch {
				case c == nil:
				case !hasFullName(served, c.podFullName):
					return findingf("pod %s/%s is served with %s, which was "+
						"created for %s", served.Namespace, served.Name, c, c.podFullName)
				case c.pod.uid != string(served.UID):
					return findingf("pod %s/%s (uid %s) is served with %s",
						served.Namespace, served.Name, served.UID, c)
				}
			}
		}
	}
	return nil
}

func hasFullName(pod *v1.Pod, full string) bool {
	namespace, name, _ := strings.Cut(full, "/")
	return pod.Namespace == namespace && pod.Name == name
}

// manifestReadBound is how long the agent may take to read a changed manifest, without a fault:
// its period of 20 s, and the time to read.
const manifestReadBound = 30 * time.Second

// isOfCurrentManifest reports whether a container was created for the manifest as it was last
// written. If so, no earlier state of the pod is a reason to stop the container.
func (m *model) isOfCurrentManifest(c *container) bool {
	p := c.pod
	within := manifestReadBound
	if p.desiredAt.Before(m.agentStartedAt) && c.createdAt.After(m.agentStartedAt) {
		within += m.agentStartedAt.Sub(p.desiredAt)
	}
	if m.anyFaultPossible(p.desiredAt, c.createdAt, "ReadFiles", "FetchManifest", "FileChanged",
		"CreateContainer") {
		within = max(within, manifestNoticeBound)
	}
	return p.spec != nil && c.createdAt.Sub(p.desiredAt) > within
}
