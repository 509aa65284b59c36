package criconfig

import (
	"testing"

	v1 "k8s.io/api/core/v1"

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
