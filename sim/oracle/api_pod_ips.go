package oracle

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

// podIPs fires when the agent reports an address that a pod, or its node, does not have, or does
// not report that of its sandbox. Services send the requests of clients there.
type podIPs struct {
	addresses map[string][]string // of all sandboxes that a pod has had, by its UID
	newest    map[string]address  // of the newest sandbox of a pod
}

// address is that of a sandbox that is ready.
type address struct {
	sandbox, ip string
	since       time.Time
}

func (*podIPs) describe() Entry {
	return Entry{"pod-ips", "The API server has as the IPs of a pod only those of its own " +
		"sandboxes, and of the newest one within 30 s if no fault hides that; in the node's network, " +
		"and as the IPs of its host, those of the node."}
}

func (o *podIPs) checkFact(m *model, f *truth.Fact) *finding {
	if f.Kind == truth.SandboxReady {
		if o.addresses == nil {
			o.addresses, o.newest = map[string][]string{}, map[string]address{}
		}
		o.addresses[f.PodUID] = append(o.addresses[f.PodUID], f.Addresses...)
		delete(o.newest, f.PodUID)
		if len(f.Addresses) > 0 {
			o.newest[f.PodUID] = address{f.SandboxID, f.Addresses[0], f.Time}
		}
	}
	if !isAgentStatus(f) || len(m.opts.NodeAddresses) == 0 {
		return nil
	}
	object := f.Write.After.Pod
	name, status := object.Namespace+"/"+object.Name, &object.Status
	if len(status.PodIPs) > 0 && status.PodIPs[0].IP != status.PodIP ||
		len(status.PodIPs) == 0 && status.PodIP != "" {
		return findingf("pod %s has the IP %q, and the IPs %v", name, status.PodIP, status.PodIPs)
	}
	if len(status.HostIPs) > 0 && status.HostIPs[0].IP != status.HostIP {
		return findingf("pod %s has the host's IP %q, and its IPs %v", name, status.HostIP,
			status.HostIPs)
	}
	for _, ip := range status.HostIPs {
		if !slices.Contains(m.opts.NodeAddresses, ip.IP) {
			return findingf("pod %s has the host's IP %s, the node has %v", name, ip.IP,
				m.opts.NodeAddresses)
		}
	}
	own := m.opts.NodeAddresses
	if !object.Spec.HostNetwork {
		own = nil
		for _, p := range m.podsOfObject(object) {
			own = append(own, o.addresses[p.uid]...)
		}
	}
	for _, ip := range status.PodIPs {
		if !slices.Contains(own, ip.IP) {
			return findingf("pod %s has the IP %s, its sandboxes have %v", name, ip.IP, own)
		}
	}
	return nil
}

// checkServed checks that the API server has the address of the newest sandbox.
func (o *podIPs) checkServed(m *model, now time.Time, _ []*v1.Pod) *finding {
	if m.agentDown || m.objects.node == nil || len(m.opts.NodeAddresses) == 0 {
		return nil
	}
	if !m.isReportingUndisturbed(now) {
		return nil
	}
	for _, p := range m.podsInOrder {
		object, s := m.objects.pods[p.fullName.name], p.newestSandbox()
		if object == nil || p.spec == nil || !p.isOf(object) || p.mayBeReportedOtherwise(object) ||
			now.Sub(later(p.desiredAt, object.CreationTimestamp.Time)) <= containerStateBound ||
			s == nil || !s.ready || now.Sub(s.readyAt) <= containerStateBound {
			continue
		}
		want := m.opts.NodeAddresses[0]
		if !object.Spec.HostNetwork {
			newest := o.newest[p.uid]
			if newest.sandbox != s.id {
				continue // an older one has become ready later
			}
			want = newest.ip
		}
		if object.Status.PodIP != want || object.Status.HostIP != m.opts.NodeAddresses[0] {
			return findingf("pod %s/%s has the IP %q on the host %q, its sandbox has had %s since %v",
				object.Namespace, object.Name, object.Status.PodIP, object.Status.HostIP, want, s.readyAt)
		}
	}
	return nil
}
