package apiserver

import (
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/world"
)

// delete removes an object or marks it for deletion. A pod with a grace period and any object with
// finalizers are marked. A pod that is deleted with a grace period of zero is marked first and then
// removed, and watches see both changes.
func (s *Server) delete(by requester, m *world.DeleteObject) *world.Error {
	old, err := s.find(m, key{m.Resource, m.Namespace, m.Name})
	if err != nil {
		return err
	}
	_, oldMeta := old.Meta()
	if m.UID != "" && m.UID != string(oldMeta.GetUID()) {
		return world.Errorf(world.KindConflict, world.CallName(m), "the UID in the precondition (%s) "+
			"does not match the UID in record (%s). The object might have been deleted and then "+
			"recreated", m.UID, oldMeta.GetUID())
	}
	o := clone(old)
	_, meta := o.Meta()
	switch {
	case o.Pod != nil:
		if !s.markPodForDeletion(o.Pod, m.GracePeriodSeconds) {
			return nil // already being deleted, with an earlier deadline
		}
		o = s.put(by, clone(o), false)
		_, meta = o.Meta()
	case len(meta.GetFinalizers()) > 0:
		if meta.GetDeletionTimestamp() == nil {
			now, zero := s.now(), int64(0)
			meta.SetDeletionTimestamp(&now)
			meta.SetDeletionGracePeriodSeconds(&zero)
			s.put(by, clone(o), false)
		}
		return nil
	default:
		s.remove(by, o)
		return nil
	}
	if canRemove(meta) {
		s.remove(by, o)
	}
	return nil
}

// canRemove reports whether an object is marked for deletion and has neither a grace period nor
// finalizers left.
func canRemove(meta metav1.Object) bool {
	grace := meta.GetDeletionGracePeriodSeconds()
	return meta.GetDeletionTimestamp() != nil && (grace == nil || *grace == 0) &&
		len(meta.GetFinalizers()) == 0
}

// markPodForDeletion sets the deletion timestamp and grace period of a pod, or shortens the grace
// period of a pod that has them. It returns false if nothing changes.
func (s *Server) markPodForDeletion(pod *v1.Pod, requested *int64) bool {
	if requested != nil && *requested < 0 {
		requested = new(int64(1))
	}
	if pod.DeletionTimestamp != nil {
		return s.shortenGracePeriod(pod, requested)
	}
	grace := int64(0)
	switch {
	case pod.Spec.NodeName == "", isTerminal(pod.Status.Phase):
	case requested != nil:
		grace = *requested
	case pod.Spec.TerminationGracePeriodSeconds != nil:
		grace = *pod.Spec.TerminationGracePeriodSeconds
	}
	if grace < 0 {
		grace = 1
	}
	ends := metav1.NewTime(s.now().Add(time.Duration(grace) * time.Second))
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &ends, &grace
	pod.Generation++
	return true
}

// shortenGracePeriod applies a second deletion of a pod. The deletion timestamp moves back by the
// difference of the grace periods. If it would be in the past it is set to now, with a grace period
// of one second.
func (s *Server) shortenGracePeriod(pod *v1.Pod, requested *int64) bool {
	grace := pod.DeletionGracePeriodSeconds
	if grace == nil || *grace == 0 {
		return true
	}
	if requested == nil || *requested >= *grace {
		return false
	}
	left := *requested
	ends := metav1.NewTime(pod.DeletionTimestamp.Add(
		time.Duration(left-*grace) * time.Second))
	if now := s.now(); ends.Before(&now) {
		ends = now
		if left != 0 {
			left = 1
		}
	}
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &ends, &left
	return true
}

func isTerminal(phase v1.PodPhase) bool {
	return phase == v1.PodFailed || phase == v1.PodSucceeded
}
