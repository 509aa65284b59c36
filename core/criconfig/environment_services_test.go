package criconfig

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/budget"
	"seedlet.dev/world"
)

func TestServiceVariables(t *testing.T) {
	https := v1.ServicePort{Name: "https", Port: 443, Protocol: "TCP"}
	dns := v1.ServicePort{Name: "dns-udp", Port: 53, Protocol: "UDP"}
	master := service("default", "kubernetes", "10.0.0.1", https)
	no := false
	const apiServer = "KUBERNETES_PORT=tcp://10.0.0.1:443 " +
		"KUBERNETES_PORT_443_TCP=tcp://10.0.0.1:443 " +
		"KUBERNETES_PORT_443_TCP_ADDR=10.0.0.1 KUBERNETES_PORT_443_TCP_PORT=443 " +
		"KUBERNETES_PORT_443_TCP_PROTO=tcp KUBERNETES_SERVICE_HOST=10.0.0.1 " +
		"KUBERNETES_SERVICE_PORT=443 KUBERNETES_SERVICE_PORT_HTTPS=443"
	for _, c := range []struct {
		name  string
		links *bool
		also  world.Object
		want  string
	}{
		{"only the API server", &no, service("shop", "db", "10.0.0.2", https), apiServer},
		{"headless", nil, service("shop", "db", "None", https), apiServer},
		{"another namespace", nil, service("default", "db", "10.0.0.2", https), apiServer},
		{"the pod's namespace", nil, service("shop", "a-db", "fd00::2", v1.ServicePort{Port: 1}, dns),
			"A_DB_PORT=tcp://[fd00::2]:1 A_DB_PORT_1_TCP=tcp://[fd00::2]:1 " +
				"A_DB_PORT_1_TCP_ADDR=fd00::2 A_DB_PORT_1_TCP_PORT=1 A_DB_PORT_1_TCP_PROTO=tcp " +
				"A_DB_PORT_53_UDP=udp://[fd00::2]:53 A_DB_PORT_53_UDP_ADDR=fd00::2 " +
				"A_DB_PORT_53_UDP_PORT=53 A_DB_PORT_53_UDP_PROTO=udp A_DB_SERVICE_HOST=fd00::2 " +
				"A_DB_SERVICE_PORT=1 A_DB_SERVICE_PORT_DNS_UDP=53 " + apiServer},
		{"the name of the API server's", nil, service("shop", "kubernetes", "10.0.0.3",
			v1.ServicePort{Port: 1}), "KUBERNETES_PORT=tcp://10.0.0.3:1 " +
			"KUBERNETES_PORT_1_TCP=tcp://10.0.0.3:1 KUBERNETES_PORT_1_TCP_ADDR=10.0.0.3 " +
			"KUBERNETES_PORT_1_TCP_PORT=1 KUBERNETES_PORT_1_TCP_PROTO=tcp " +
			"KUBERNETES_SERVICE_HOST=10.0.0.3 KUBERNETES_SERVICE_PORT=1"},
	} {
		p := newPod()
		p.Spec.Namespace, p.Spec.Spec.EnableServiceLinks = "shop", c.links
		p.serve(c.also, master)
		got, err := p.Environment(p.web())
		if shell(got) != c.want || err != nil {
			t.Errorf("%s: %s, %v; want %s", c.name, shell(got), err, c.want)
		}
	}
}

// The variables of the spec may refer to those of services, and replace those of the same name.
func TestSpecReplacesServiceVariables(t *testing.T) {
	p := newPod()
	p.web().Env = []v1.EnvVar{{Name: "URL", Value: "http://$(DB_SERVICE_HOST)"},
		{Name: "DB_SERVICE_PORT", Value: "none"}}
	p.serve(service("default", "db", "10.0.0.2", v1.ServicePort{Port: 1}))
	got, err := p.Environment(p.web())
	if err != nil || string(got.List[0].Value) != "http://10.0.0.2" ||
		string(got.List[1].Value) != "none" {
		t.Errorf("%s, %v", shell(got), err)
	}
	seen := map[string]bool{}
	for _, v := range got.List {
		if seen[v.Key] {
			t.Errorf("the variable %s exists twice", v.Key)
		}
		seen[v.Key] = true
	}
}

// The variables of services are computed once for the pods of a namespace, and again when a service
// changes or goes, or for a pod that wants other ones.
func TestServiceVariablesFollowServices(t *testing.T) {
	p := newPod()
	p.serve(service("default", "db", "10.0.0.2", v1.ServicePort{Port: 1}))
	w := p.Objects.Watch(AllServices)
	check := func(step, want string) {
		t.Helper()
		again := &Pod{Spec: p.Spec, Node: p.Node, Objects: p.Objects}
		got, err := again.Environment(again.web())
		if err != nil {
			t.Fatal(err)
		}
		address, _ := got.lookup("DB_SERVICE_HOST")
		if string(address) != want {
			t.Errorf("%s: DB_SERVICE_HOST is %q, want %q", step, address, want)
		}
	}
	check("listed", "10.0.0.2")
	no := false
	p.Spec.Spec.EnableServiceLinks = &no
	check("without links", "")
	p.Spec.Spec.EnableServiceLinks = nil
	p.Objects.HandleWatchEvent(&world.ObjectChanged{Watch: w.ID,
		Object: service("default", "db", "10.0.0.3", v1.ServicePort{Port: 1})}, time.Unix(0, 0))
	check("changed", "10.0.0.3")
	p.Objects.HandleWatchEvent(&world.ObjectGone{Watch: w.ID,
		Object: service("default", "db", "10.0.0.3", v1.ServicePort{Port: 1})}, time.Unix(0, 0))
	check("gone", "")
	p.Objects.HandleWatchEvent(&world.ObjectsListed{Watch: w.ID, Objects: []world.Object{
		service("default", "db", "10.0.0.4", v1.ServicePort{Port: 1})}}, time.Unix(0, 0))
	check("listed again", "10.0.0.4")
	first, err := p.Environment(p.web())
	again := &Pod{Spec: p.Spec, Node: p.Node, Objects: p.Objects}
	second, errAgain := again.Environment(again.web())
	if err != nil || errAgain != nil || first.List[0] != second.List[0] {
		t.Error("the variables are computed for each container")
	}
}

// The variables of too many services are an error that says what helps, and of as many as fit none.
func TestServiceVariablesAreBounded(t *testing.T) {
	services := func(n int) []world.Object {
		var all []world.Object
		for i := range n {
			all = append(all, service("default", fmt.Sprint("s", i), "10.0.0.2", v1.ServicePort{Port: 1}))
		}
		return all
	}
	const fit = budget.VariablesMax / 7
	p := newPod()
	p.serve(services(fit)...)
	if got, err := p.Environment(p.web()); err != nil || len(got.List) != 7*fit {
		t.Error(err)
	}
	for name, own := range map[string][]v1.EnvVar{
		"services": nil, "with its own": slices.Repeat([]v1.EnvVar{{Name: "A"}}, 10)} {
		p := newPod()
		p.web().Env = own
		p.serve(services(fit + 1 - min(len(own), 1))...)
		const want = "more than 40000 environment variables, with those of services, which " +
			"enableServiceLinks: false leaves out"
		if _, err := p.Environment(p.web()); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
}

// The bytes of a container's own variables and of those of services count together.
func TestServiceVariablesCountInBytes(t *testing.T) {
	p := newPod()
	for i := range 17 {
		p.web().Env = append(p.web().Env, v1.EnvVar{Name: fmt.Sprint("A", i),
			Value: strings.Repeat("x", 120_000)})
	}
	if _, err := p.newEnvironment(p.web()); err != nil {
		t.Fatal(err)
	}
	var all []world.Object
	for i := range 500 {
		all = append(all, service("default", fmt.Sprint("s", i), "10.0.0.2", v1.ServicePort{Port: 1}))
	}
	p.serve(all...)
	const want = "environment variables longer than 2097152 bytes together, with those of services, " +
		"which enableServiceLinks: false leaves out"
	if _, err := p.newEnvironment(p.web()); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// Each container has its own variables, and those of services are not changed by any.
func TestEnvironmentsOfContainers(t *testing.T) {
	p := newPod()
	p.serve(service("default", "db", "10.0.0.2", v1.ServicePort{Port: 1}))
	a := &v1.Container{Env: []v1.EnvVar{{Name: "X", Value: "1"}}}
	b := &v1.Container{Env: []v1.EnvVar{{Name: "X", Value: "2"}}}
	for _, c := range []*v1.Container{a, b, a} {
		got, err := p.Environment(c)
		if err != nil || string(got.List[0].Value) != c.Env[0].Value {
			t.Errorf("%s, %v; want %s", shell(got), err, c.Env[0].Value)
		}
	}
	none, err := p.Environment(&v1.Container{})
	if err != nil || cap(none.List) != len(none.List) {
		t.Error("a variable that is added to the list overwrites one of another container", err)
	}
}
