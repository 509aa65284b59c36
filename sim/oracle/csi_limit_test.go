package oracle

import (
	"crypto/sha256"
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/world"
)

// csiFullNode starts the agent and a pod whose volume cannot be attached, as the node has too many.
// The driver says how many it can have once in a period, in seconds; zero: once.
func csiFullNode(s *script, period int64) {
	csiStartAgent(s)
	d := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: csiDriver}}
	if period > 0 {
		d.Spec.NodeAllocatableUpdatePeriodSeconds = &period
	}
	writeObject(s, world.Object{}, world.Object{CSIDriver: d}, 0)
	writeObject(s, nodeWith(true, true), nodeWith(true, false), 0)
	s.sandbox("u1", 0)
	csiAttachment(s, false, 8)
}

// csiAttachment writes the attachment of the volume, and the code of gRPC with which it has failed.
func csiAttachment(s *script, attached bool, code int32) {
	status := storagev1.VolumeAttachmentStatus{Attached: attached}
	if code != 0 {
		status.AttachError = &storagev1.VolumeError{ErrorCode: &code}
	}
	writeObject(s, world.Object{}, world.Object{Attachment: &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("csi-%x", sha256.Sum256([]byte("h"+csiDriver+"node")))},
		Status: status}}, 0)
}

// csiEnd has the agent report that the pod has failed as the node has too many volumes.
func csiEnd(s *script) {
	before := s.model.pods["u1"].spec.DeepCopy()
	after := before.DeepCopy()
	after.Status = v1.PodStatus{Phase: v1.PodFailed, Reason: reasonVolumeLimit}
	writeObject(s, world.Object{Pod: before}, world.Object{Pod: after}, 1)
}

func csiServed(s *script) {
	served := s.model.pods["u1"].spec.DeepCopy()
	served.Status.Phase = v1.PodPending
	s.CheckServed(s.now, []*v1.Pod{served})
}

func TestCSILimit(t *testing.T) {
	runCases(t, []testCase{
		{"ended after the wait", "", func(s *script) {
			csiFullNode(s, 60)
			s.wait(130)
			csiEnd(s)
		}},
		{"ended at once", "csi-limit", func(s *script) {
			csiFullNode(s, 60)
			csiEnd(s)
		}},
		{"ended for another error", "csi-limit", func(s *script) {
			csiStartAgent(s)
			csiFullNode(s, 60)
			s.model.csi.full = map[string]csiFull{}
			csiAttachment(s, false, 13)
			s.wait(130)
			csiEnd(s)
		}},
		{"ended although the number is fixed", "csi-limit", func(s *script) {
			csiFullNode(s, 0)
			s.wait(130)
			csiEnd(s)
		}},
		{"waits in vain", "csi-limit", func(s *script) {
			csiFullNode(s, 60)
			s.wait(200)
			csiServed(s)
		}},
		{"waits, and the number is fixed", "", func(s *script) {
			csiFullNode(s, 0)
			s.wait(200)
			csiServed(s)
		}},
		{"waits for another agent", "", func(s *script) {
			csiFullNode(s, 60)
			s.wait(100)
			s.AgentKilled(s.now)
			s.AgentStarted(s.now)
			s.wait(100)
			csiServed(s)
		}},
		{"the agent knows of no pod until a request has timed out", "", func(s *script) {
			csiFullNode(s, 60)
			s.wait(100)
			s.timeOut("ListPodSandbox")
			s.wait(100)
			csiServed(s)
		}},
		{"attached in the end", "", func(s *script) {
			csiFullNode(s, 60)
			s.wait(200)
			csiAttachment(s, true, 0)
			csiServed(s)
		}},
	})
}
