package oracle

import (
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// message fires when a container is shown to have said something about its end that it has not.
// Nobody can say what is in a file that cannot be read; but that is said then, and not for ever.
type message struct{}

func (*message) entry() Entry {
	return Entry{"message", "The termination message that the API shows is what the container " +
		"wrote, or the end of its log if it is to be."}
}

func (*message) answer(w *world, _ time.Time, pods []*v1.Pod) *finding {
	for _, shown := range pods {
		for _, list := range statuses(shown) {
			for i := range list {
				for _, t := range []*v1.ContainerStateTerminated{
					list[i].State.Terminated, list[i].LastTerminationState.Terminated,
				} {
					what := w.missaid(shown, t)
					if what != "" && !strings.Contains(t.Message, unreadable) {
						return &finding{message: what}
					}
				}
			}
		}
	}
	return nil
}

const unreadable = "Error on reading termination "

// The API's bounds, in bytes.
const (
	messageMax    = 4096
	messageMaxPod = 12 << 10
	logEndMax     = 2048
	logEndLines   = 80
)

// missaid is what is wrong with a message that is shown; empty if nothing is.
func (w *world) missaid(shown *v1.Pod, t *v1.ContainerStateTerminated) string {
	if t == nil {
		return ""
	}
	_, id, _ := strings.Cut(t.ContainerID, "://")
	c := w.containers[id]
	if c == nil || c.state != exited || t.Message == "" && (c.pod.loose() || c.logLost) {
		return "" // an old removal that came late may have taken the file along
	}
	share := messageMaxPod / (len(shown.Spec.InitContainers) + len(shown.Spec.Containers))
	want := c.says()
	if want = want[:min(len(want), share)]; t.Message == want {
		return ""
	}
	return fmt.Sprintf("%s is shown to have said %.60q (%d bytes), want %.60q (%d)", c, t.Message,
		len(t.Message), want, len(want))
}

// says is what a container that has exited says about its end.
func (c *container) says() string {
	if c.message != "" || !c.fallback || c.code == 0 || !c.ran() {
		return c.message[max(0, len(c.message)-messageMax):]
	}
	lines := strings.SplitAfter(c.logEnd, "\n")
	lines = lines[:len(lines)-1]
	end := strings.Join(lines[max(0, len(lines)-logEndLines):], "")
	return end[max(0, len(end)-logEndMax):]
}
