package oracle

import (
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// unsettledObjects returns what is wrong at the API server, in lines.
func (m *model) unsettledObjects(now time.Time) []string {
	if !m.opts.HasAPIServer {
		return nil
	}
	var lines []string
	add := func(name, format string, args ...any) {
		lines = append(lines, fmt.Sprintf("at the API server, pod %s: ", name)+
			fmt.Sprintf(format, args...))
	}
	for _, name := range slices.Sorted(maps.Keys(m.objects.pods)) {
		if problem := m.objectProblem(now, m.objects.pods[name]); problem != "" {
			add(name, "%s", problem)
		}
	}
	for _, p := range m.podsInOrder {
		if m.objects.node == nil { // which owns all mirror pods
			break
		}
		if p.spec == nil || p.spec.Annotations[annotationSource] == "" {
			continue // a pod of the API server
		}
		if m.objects.pods[p.fullName.name] == nil {
			add(p.fullName.name, "there is no mirror of it")
		}
	}
	return lines
}

// unsettledNode returns what is wrong with the Node at the API server.
func (m *model) unsettledNode() []string {
	ready := conditionOf(m.objects.node, v1.NodeReady)
	if m.objects.node == nil || ready.Status == v1.ConditionTrue {
		return nil
	}
	return []string{"at the API server, the Node is not ready: " + ready.Message}
}

// objectProblem returns what is wrong with the object of a pod; empty if nothing is.
func (m *model) objectProblem(now time.Time, object *v1.Pod) string {
	switch p := m.pods[string(object.UID)]; {
	case object.DeletionTimestamp != nil && p != nil && p.keepsVolume(now, 0):
		return "" // the pod ends when the driver is there again
	case object.DeletionTimestamp != nil:
		if problem := deletionProblem(object); problem != "" {
			return "it is marked for deletion, and " + problem
		}
	case isMirror(object):
		return m.mirrorProblem(object)
	case p != nil && p.spec != nil && !p.isHostile():
		since := later(later(p.changedAt, p.desiredAt), later(m.agentStartedAt, m.healedAt))
		if now.Sub(since) <= statusWriteBound {
			return "it changed too recently to compare"
		}
		return m.statusProblem(p, object)
	}
	return ""
}

// deletionProblem returns what the agent has left to do about an object that is marked for
// deletion. Finalizers are for others to remove.
func deletionProblem(object *v1.Pod) string {
	switch grace := object.DeletionGracePeriodSeconds; {
	case len(object.Finalizers) == 0:
		return "still exists"
	case !isMirror(object) && !isTerminalPhase(object.Status.Phase):
		return "not reported in a terminal phase"
	case grace == nil || *grace != 0:
		return "something other than its finalizers keeps it"
	}
	return ""
}

// statusWriteBound is how long the agent may take to write a changed status, without a fault.
const statusWriteBound = 10 * time.Second

// mirrorProblem returns what is wrong with a mirror pod.
func (m *model) mirrorProblem(object *v1.Pod) string {
	node := m.objects.node
	if node != nil && !slices.ContainsFunc(object.OwnerReferences, isOwnedBy(node)) {
		return "it does not belong to the Node"
	}
	mirrored := object.Annotations[v1.MirrorPodAnnotationKey]
	desired := ""
	for _, p := range m.podsOfObject(object) {
		if p.spec == nil {
			continue
		}
		if desired = p.spec.Annotations[annotationUID]; desired == mirrored {
			return ""
		}
	}
	if desired == "" {
		return "it is the mirror of nothing"
	}
	return fmt.Sprintf("it mirrors %s, the manifest is %s", mirrored, desired)
}

func isOwnedBy(node *v1.Node) func(owner metav1.OwnerReference) bool {
	return func(owner metav1.OwnerReference) bool {
		return owner.Kind == "Node" && owner.UID == node.UID
	}
}
