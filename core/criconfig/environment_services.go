package criconfig

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world"
)

// The environment variables by which a container finds services, as the kubelet sets them: those of
// the services of the pod's namespace, if enableServiceLinks is set, and always those of the API
// server's service.

// AllServices selects the services of all namespaces. The agent watches them from its start; new
// pods wait for their first list.
var AllServices = world.WatchTarget{Resource: world.ResourceServices}

// masterService is the name of the API server's service, in the namespace default.
const masterService = "kubernetes"

// serviceVariables returns the variables of all services that the pod has variables for, sorted by
// name. Of two services of the same name the one in the pod's own namespace counts.
func (p *Pod) serviceVariables() *Variables {
	variables := &Variables{}
	if p.Objects == nil {
		return variables
	}
	w := p.Objects.Watch(AllServices)
	if w == nil || !w.Listed {
		return variables // only a static pod gets this far: it does not wait for services
	}
	links := p.Spec.Spec.EnableServiceLinks == nil || *p.Spec.Spec.EnableServiceLinks
	var services []*v1.Service
	for name, object := range w.Objects { //ordered: sorted below
		namespace, name, _ := strings.Cut(name, "/")
		master := namespace == v1.NamespaceDefault && name == masterService
		if (master || links && namespace == p.Spec.Namespace) && hasAddress(object.Service) {
			services = append(services, object.Service)
		}
	}
	slices.SortFunc(services, func(x, y *v1.Service) int {
		switch {
		case x.Name != y.Name:
			return strings.Compare(x.Name, y.Name)
		case x.Namespace == p.Spec.Namespace:
			return 1
		}
		return -1
	})
	for i, s := range services {
		if i+1 < len(services) && services[i+1].Name == s.Name {
			continue // the service of the pod's own namespace replaces that of the API server
		}
		addService(variables, s)
	}
	slices.SortFunc(variables.List, func(x, y *runtimeapi.KeyValue) int {
		return strings.Compare(x.Key, y.Key)
	})
	return newVariables(variables.List)
}

// hasAddress reports whether a service has an address of its own; a headless one has none.
func hasAddress(s *v1.Service) bool {
	return s != nil && s.Spec.ClusterIP != "" && s.Spec.ClusterIP != v1.ClusterIPNone &&
		len(s.Spec.Ports) > 0
}

// addService adds the variables of one service: NAME_SERVICE_HOST and _PORT, and those of Docker's
// links.
func addService(variables *Variables, s *v1.Service) {
	name, ip := variableName(s.Name), s.Spec.ClusterIP
	add := func(key, value string) { variables.set(key, []byte(value)) }
	add(name+"_SERVICE_HOST", ip)
	for i := range s.Spec.Ports {
		port := &s.Spec.Ports[i]
		number := strconv.Itoa(int(port.Port))
		protocol := strings.ToLower(string(port.Protocol))
		if protocol == "" {
			protocol = "tcp"
		}
		url := protocol + "://" + hostPort(ip, number)
		if i == 0 {
			add(name+"_SERVICE_PORT", number)
			add(name+"_PORT", url)
		}
		if port.Name != "" {
			add(name+"_SERVICE_PORT_"+variableName(port.Name), number)
		}
		link := name + "_PORT_" + number + "_" + strings.ToUpper(protocol)
		add(link, url)
		add(link+"_PROTO", protocol)
		add(link+"_PORT", number)
		add(link+"_ADDR", ip)
	}
}

// variableName returns a name of the API as part of the name of a variable.
func variableName(name string) string {
	return strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// hostPort returns an address with a port in the syntax of URLs.
func hostPort(ip, port string) string {
	if addr, err := netip.ParseAddr(ip); err == nil && addr.Is6() {
		return "[" + ip + "]:" + port
	}
	return ip + ":" + port
}

// servicesListed reports whether the services are known, or the pod does not wait for them.
func (p *Pod) servicesListed() bool {
	if p.Objects == nil || p.Static {
		return true
	}
	w := p.Objects.Watch(AllServices)
	return w != nil && w.Listed
}
