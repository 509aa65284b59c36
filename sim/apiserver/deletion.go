package apiserver

import (
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/world"
)

// delete removes an object, or marks it: a pod that has a grace period left, and whatever has
// finalizers. A pod that is removed with a grace period of zero is marked first, and both is told.
func (s *Server) delete(who author, m *world.DeleteObject) *world.Error {
	old, err := s.find(m, key{m.Resource, m.Namespace, m.Name})
	if err != nil {
		return err
	}
	_, was := old.Get()
	if m.UID != "" && m.UID != string(was.GetUID()) {
		return world.Errorf(world.KindConflict, world.Call(m), "the UID in the precondition (%s) "+
			"does not match the UID in record (%s). The object might have been deleted and then "+
			"recreated", m.UID, was.GetUID())
	}
	o := clone(old)
	_, meta := o.Get()
	switch {
	case o.Pod != nil:
		if !s.markPod(o.Pod, m.GracePeriodSeconds) {
			return nil // it is being removed already, and not to be sooner
		}
		o = s.put(who, clone(o), false)
		_, meta = o.Get()
	case len(meta.GetFinalizers()) > 0:
		if meta.GetDeletionTimestamp() == nil {
			now, none := s.now(), int64(0)
			meta.SetDeletionTimestamp(&now)
			meta.SetDeletionGracePeriodSeconds(&none)
			s.put(who, clone(o), false)
		}
		return nil
	default:
		s.drop(who, o)
		return nil
	}
	if over(meta) {
		s.drop(who, o)
	}
	return nil
}

// over says whether nothing keeps an object that is being removed.
func over(meta metav1.Object) bool {
	grace := meta.GetDeletionGracePeriodSeconds()
	return meta.GetDeletionTimestamp() != nil && (grace == nil || *grace == 0) &&
		len(meta.GetFinalizers()) == 0
}

// markPod marks a pod that is to be removed, with a grace period, or makes that of one that is
// being removed shorter. It returns false if there is nothing to change.
func (s *Server) markPod(pod *v1.Pod, asked *int64) bool {
	if asked != nil && *asked < 0 {
		asked = new(int64(1))
	}
	if pod.DeletionTimestamp != nil {
		return s.shorten(pod, asked)
	}
	grace := int64(0)
	switch {
	case pod.Spec.NodeName == "", isTerminal(pod.Status.Phase):
	case asked != nil:
		grace = *asked
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

// shorten is what a second deletion does: the time that the first one set moves back, but not
// before now, and then one second is left to do it in.
func (s *Server) shorten(pod *v1.Pod, asked *int64) bool {
	grace := pod.DeletionGracePeriodSeconds
	if grace == nil || *grace == 0 {
		return true
	}
	if asked == nil || *asked >= *grace {
		return false
	}
	left := *asked
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
