package pod

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The variables that tell a container of services, as the kubelet makes them: those of the pod's
// own namespace, if it wants links, and always that of the API server.

// masterService is the API server's, in the namespace default.
const masterService = "kubernetes"

// serviceVariables are the variables for all services that the pod is told of, by name. Of two
// with one name the later service counts.
func (p *Pod) serviceVariables(env *Env) []*runtimeapi.KeyValue {
	if env.Objects == nil {
		return nil
	}
	w := env.Objects.Watch(allServices)
	if w == nil || !w.Listed {
		return nil // it is a static pod, which does not wait for them
	}
	links := p.Spec.Spec.EnableServiceLinks == nil || *p.Spec.Spec.EnableServiceLinks
	var shown []*v1.Service
	for name, object := range w.Objects { //ordered: sorted below
		namespace, name, _ := strings.Cut(name, "/")
		master := namespace == v1.NamespaceDefault && name == masterService
		if (master || links && namespace == p.Namespace) && hasAddress(object.Service) {
			shown = append(shown, object.Service)
		}
	}
	slices.SortFunc(shown, func(x, y *v1.Service) int {
		switch {
		case x.Name != y.Name:
			return strings.Compare(x.Name, y.Name)
		case x.Namespace == p.Namespace:
			return 1
		}
		return -1
	})
	var variables []*runtimeapi.KeyValue
	for i, s := range shown {
		if i+1 < len(shown) && shown[i+1].Name == s.Name {
			continue // one of the pod's own namespace takes the place of the master's
		}
		variables = aboutService(s, variables)
	}
	slices.SortStableFunc(variables, func(x, y *runtimeapi.KeyValue) int {
		return strings.Compare(x.Key, y.Key)
	})
	return variables
}

// hasAddress says whether a service has an address of its own; a headless one has none.
func hasAddress(s *v1.Service) bool {
	return s != nil && s.Spec.ClusterIP != "" && s.Spec.ClusterIP != v1.ClusterIPNone &&
		len(s.Spec.Ports) > 0
}

// aboutService adds the variables for one service: NAME_SERVICE_HOST and _PORT, and those that
// Docker's links had.
func aboutService(s *v1.Service, to []*runtimeapi.KeyValue) []*runtimeapi.KeyValue {
	name, ip := variableName(s.Name), s.Spec.ClusterIP
	add := func(key, value string) { to = set(to, key, []byte(value)) }
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
	return to
}

// variableName is a name of the API as part of the name of a variable.
func variableName(name string) string {
	return strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// hostPort is an address with a port, as URLs have it.
func hostPort(ip, port string) string {
	if addr, err := netip.ParseAddr(ip); err == nil && addr.Is6() {
		return "[" + ip + "]:" + port
	}
	return ip + ":" + port
}

// servicesKnown says whether the services are known as far as the pod waits for them.
func (p *Pod) servicesKnown(env *Env) bool {
	if env.Objects == nil || p.IsStatic() {
		return true
	}
	w := env.Objects.Watch(allServices)
	return w != nil && w.Listed
}
