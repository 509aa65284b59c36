package core

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"seedlet.dev/world"
)

// told is an event as a user sees it.
func told(e *world.RecordEvent) string {
	where := e.Regarding.Name
	if e.Regarding.FieldPath != "" {
		where += " " + e.Regarding.FieldPath
	}
	return fmt.Sprintf("%s %s %s: %s\n", e.Type, e.Reason, where, e.Message)
}

// takeEvents are the events that were told since the last time.
func (n *node) takeEvents() string {
	events := strings.Join(n.events, "")
	n.events = nil
	return events
}

// What kubectl describe shows of the life of a pod. An agent that is restarted tells nothing of
// what runs.
func TestTheEventsOfAPod(t *testing.T) {
	manifest := strings.Replace(web, "{\n", "{dnsPolicy: Default,\n", 1)
	n := boot(map[string]string{"web.yaml": manifest})
	n.pass(5 * time.Second)
	lived := n.takeEvents()
	n.restart()
	n.pass(5 * time.Minute)
	restarted := n.takeEvents()
	delete(n.manifests, "web.yaml")
	n.pass(time.Minute)
	const pull = `Normal Pulling web-n1 %[1]s: Pulling image "i"
Normal Pulled web-n1 %[1]s: Successfully pulled image "i" in 0s (0s including waiting). ` +
		`Image size: 1024 bytes.
Normal Created web-n1 %[1]s: Container created
Normal Started web-n1 %[1]s: Container started
`
	for _, test := range []struct{ when, got, want string }{
		{"it comes", lived, "Normal Starting n1: Starting kubelet.\n" +
			fmt.Sprintf(pull, "spec.initContainers{setup}") +
			fmt.Sprintf(pull, "spec.containers{web}")},
		{"the agent is restarted", restarted, "Normal Starting n1: Starting kubelet.\n"},
		{"it goes", n.takeEvents(),
			"Normal Killing web-n1 spec.containers{web}: Stopping container web\n"},
	} {
		if diff := cmp.Diff(test.want, test.got); diff != "" {
			t.Errorf("when %s:\n%s", test.when, diff)
		}
	}
}
