package oracle

import (
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// terminationMessage fires when the served termination message is not the one that the container
// wrote. A message that reports an unreadable file is accepted here; progress requires the right
// one in the end, unless the pod has ended: its status is not written again. After a loss of power
// the files that it had written may be shorter.
type terminationMessage struct{}

func (*terminationMessage) describe() Entry {
	return Entry{"termination-message", "The served termination message is what the container " +
		"wrote, or the end of its log under FallbackToLogsOnError."}
}

func (*terminationMessage) checkServed(m *model, _ time.Time, pods []*v1.Pod) *finding {
	for _, served := range pods {
		for _, list := range containerStatuses(served) {
			for i := range list {
				for _, t := range []*v1.ContainerStateTerminated{
					list[i].State.Terminated, list[i].LastTerminationState.Terminated,
				} {
					problem := m.messageProblem(served, t)
					if problem != "" && !strings.Contains(t.Message, unreadablePrefix) {
						return &finding{message: problem}
					}
				}
			}
		}
	}
	return nil
}

const unreadablePrefix = "Error on reading termination "

// The kubelet's bounds, in bytes and lines.
const (
	maxMessageBytes       = 4096
	maxMessageBytesPerPod = 12 << 10
	maxLogTailBytes       = 2048
	maxLogTailLines       = 80
)

// messageProblem returns what is wrong with a served message; empty if nothing is.
func (m *model) messageProblem(served *v1.Pod, t *v1.ContainerStateTerminated) string {
	if t == nil {
		return ""
	}
	_, id, _ := strings.Cut(t.ContainerID, "://")
	c := m.containers[id]
	if c == nil || c.state != exited || c.hadPowerLoss ||
		t.Message == "" && (c.pod.wasRemoved() || c.logLost) {
		return "" // a delayed removal may have hit the message file
	}
	share := maxMessageBytesPerPod / (len(served.Spec.InitContainers) + len(served.Spec.Containers))
	want := c.expectedMessage()
	if want = want[:min(len(want), share)]; t.Message == want {
		return ""
	}
	return fmt.Sprintf("%s is served with message %.60q (%d bytes), want %.60q (%d)", c, t.Message,
		len(t.Message), want, len(want))
}

// expectedMessage returns the termination message of a container that has exited.
func (c *container) expectedMessage() string {
	if c.terminationMessage != "" || !c.fallbackToLog || c.exitCode == 0 || !c.hasRun() {
		return c.terminationMessage[max(0, len(c.terminationMessage)-maxMessageBytes):]
	}
	lines := strings.SplitAfter(c.logTail, "\n")
	lines = lines[:len(lines)-1]
	end := strings.Join(lines[max(0, len(lines)-maxLogTailLines):], "")
	return end[max(0, len(end)-maxLogTailBytes):]
}
