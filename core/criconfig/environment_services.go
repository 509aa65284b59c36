package criconfig

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/budget"
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
// name of the service. It fails if they exceed a bound. The result for the namespace that was asked
// for last is kept until a service changes (Watch.Memoize): there may be tens of thousands.
func (p *Pod) serviceVariables() (*Variables, error) {
	if p.Objects == nil {
		return &Variables{}, nil
	}
	w := p.Objects.Watch(AllServices)
	if w == nil || !w.Listed {
		return &Variables{}, nil // only a static pod gets this far: it does not wait for services
	}
	namespace := ""
	if links := p.Spec.Spec.EnableServiceLinks; links == nil || *links {
		namespace = p.Spec.Namespace
	}
	result := w.Memoize(namespace, func() any {
		return newServiceVariables(servicesFor(w.Objects, namespace))
	}).(serviceVariables)
	return result.variables, result.err
}

type serviceVariables struct {
	variables *Variables
	err       error
}

// newServiceVariables returns the variables of services.
func newServiceVariables(services []*v1.Service) serviceVariables {
	variables := &Variables{bound: budget.Variables}
	count := 0
	for _, s := range services {
		count += variableCount(s)
	}
	err := variables.grow(count, servicesHint)
	for i := 0; i < len(services) && err == nil; i++ {
		err = addService(variables, services[i])
	}
	return serviceVariables{variables, err}
}

// servicesFor returns the services of a namespace, and that of the API server, sorted by name. One
// of the namespace itself that has the name of the API server's replaces it.
func servicesFor(all map[string]world.Object, namespace string) []*v1.Service {
	var services []*v1.Service
	for name, object := range all { //ordered: sorted below
		of, name, _ := strings.Cut(name, "/")
		isMaster := of == v1.NamespaceDefault && name == masterService
		if (isMaster || of == namespace) && hasAddress(object.Service) {
			services = append(services, object.Service)
		}
	}
	slices.SortFunc(services, func(x, y *v1.Service) int {
		switch {
		case x.Name != y.Name:
			return strings.Compare(x.Name, y.Name)
		case x.Namespace == namespace:
			return -1
		}
		return 1
	})
	return slices.CompactFunc(services, func(x, y *v1.Service) bool { return x.Name == y.Name })
}

// hasAddress reports whether a service has an address of its own; a headless one has none.
func hasAddress(s *v1.Service) bool {
	return s != nil && s.Spec.ClusterIP != "" && s.Spec.ClusterIP != v1.ClusterIPNone &&
		len(s.Spec.Ports) > 0
}

// variableCount returns the number of variables that addService adds.
func variableCount(s *v1.Service) int {
	count := 3 // NAME_PORT, NAME_SERVICE_HOST and NAME_SERVICE_PORT
	for i := range s.Spec.Ports {
		count += 4 // the link, its _ADDR, _PORT and _PROTO
		if s.Spec.Ports[i].Name != "" {
			count++
		}
	}
	return count
}

// addService adds the variables of one service: those of Docker's links, and NAME_SERVICE_HOST and
// _PORT. It fails if they exceed a bound. There may be thousands of services, so names share one
// text where one begins with the other, and variables share their values.
func addService(variables *Variables, s *v1.Service) error {
	name, ip := variableName(s.Name), []byte(s.Spec.ClusterIP)
	var err error
	add := func(key string, value []byte) {
		if err == nil {
			err = variables.add(key, value)
		}
	}
	for i := range s.Spec.Ports {
		port := &s.Spec.Ports[i]
		number, protocol := strconv.Itoa(int(port.Port)), cmp.Or(string(port.Protocol), "TCP")
		scheme := strings.ToLower(protocol)
		url := []byte(scheme + "://" + hostPort(s.Spec.ClusterIP, number))
		addr := name + "_PORT_" + number + "_" + strings.ToUpper(protocol) + "_ADDR"
		link := addr[:len(addr)-len("_ADDR")]
		if i == 0 {
			add(link[:len(name)+len("_PORT")], url)
		}
		add(link, url)
		add(addr, ip)
		add(link+"_PORT", []byte(number))
		add(link+"_PROTO", url[:len(scheme):len(scheme)])
	}
	add(name+"_SERVICE_HOST", ip)
	for i := range s.Spec.Ports {
		port := &s.Spec.Ports[i]
		number := []byte(strconv.Itoa(int(port.Port)))
		if i == 0 {
			add(name+"_SERVICE_PORT", number)
		}
		if port.Name != "" {
			add(name+"_SERVICE_PORT_"+variableName(port.Name), number)
		}
	}
	return err
}

// variableName returns a name of the API as part of the name of a variable.
func variableName(name string) string {
	upper := []byte(name)
	for i, c := range upper { // names of the API are ASCII
		switch {
		case c == '-':
			upper[i] = '_'
		case 'a' <= c && c <= 'z':
			upper[i] = c - 'a' + 'A'
		}
	}
	return string(upper)
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
