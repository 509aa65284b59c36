package pod

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/core/manifest"
	"seedlet.dev/world"
)

func service(namespace, name, ip string, ports ...v1.ServicePort) world.Object {
	return world.Object{Service: &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1.ServiceSpec{ClusterIP: ip, Ports: ports}}}
}

func TestServiceVariables(t *testing.T) {
	https := v1.ServicePort{Name: "https", Port: 443, Protocol: "TCP"}
	dns := v1.ServicePort{Name: "dns-udp", Port: 53, Protocol: "UDP"}
	master := service("default", "kubernetes", "10.0.0.1", https)
	no := false
	const shown = "KUBERNETES_PORT=tcp://10.0.0.1:443 KUBERNETES_PORT_443_TCP=tcp://10.0.0.1:443 " +
		"KUBERNETES_PORT_443_TCP_ADDR=10.0.0.1 KUBERNETES_PORT_443_TCP_PORT=443 " +
		"KUBERNETES_PORT_443_TCP_PROTO=tcp KUBERNETES_SERVICE_HOST=10.0.0.1 " +
		"KUBERNETES_SERVICE_PORT=443 KUBERNETES_SERVICE_PORT_HTTPS=443"
	for _, c := range []struct {
		name  string
		links *bool
		also  world.Object
		want  string
	}{
		{"the master's only", &no, service("shop", "db", "10.0.0.2", https), shown},
		{"headless", nil, service("shop", "db", "None", https), shown},
		{"of another namespace", nil, service("default", "db", "10.0.0.2", https), shown},
		{"of its own", nil, service("shop", "a-db", "fd00::2", v1.ServicePort{Port: 1}, dns),
			"A_DB_PORT=tcp://[fd00::2]:1 A_DB_PORT_1_TCP=tcp://[fd00::2]:1 " +
				"A_DB_PORT_1_TCP_ADDR=fd00::2 A_DB_PORT_1_TCP_PORT=1 A_DB_PORT_1_TCP_PROTO=tcp " +
				"A_DB_PORT_53_UDP=udp://[fd00::2]:53 A_DB_PORT_53_UDP_ADDR=fd00::2 " +
				"A_DB_PORT_53_UDP_PORT=53 A_DB_PORT_53_UDP_PROTO=udp A_DB_SERVICE_HOST=fd00::2 " +
				"A_DB_SERVICE_PORT=1 A_DB_SERVICE_PORT_DNS_UDP=53 " + shown},
		{"called as the master's", nil, service("shop", "kubernetes", "10.0.0.3",
			v1.ServicePort{Port: 1}), "KUBERNETES_PORT=tcp://10.0.0.3:1 " +
			"KUBERNETES_PORT_1_TCP=tcp://10.0.0.3:1 KUBERNETES_PORT_1_TCP_ADDR=10.0.0.3 " +
			"KUBERNETES_PORT_1_TCP_PORT=1 KUBERNETES_PORT_1_TCP_PROTO=tcp " +
			"KUBERNETES_SERVICE_HOST=10.0.0.3 KUBERNETES_SERVICE_PORT=1"},
	} {
		s := spec(v1.RestartPolicyAlways, "", "web")
		s.Namespace, s.Spec.EnableServiceLinks = "shop", c.links
		p := facts(s)
		got, err := p.environment(p.want("web"), knowing(p, c.also, master))
		if shell(got) != c.want || err != nil {
			t.Errorf("%s: %s, %v; want %s", c.name, shell(got), err, c.want)
		}
	}
}

// What the spec gives may refer to services, and takes their place.
func TestServicesGiveWay(t *testing.T) {
	s := spec(v1.RestartPolicyAlways, "", "web")
	s.Spec.Containers[0].Env = []v1.EnvVar{{Name: "URL", Value: "http://$(DB_SERVICE_HOST)"},
		{Name: "DB_SERVICE_PORT", Value: "none"}}
	p := facts(s)
	env := knowing(p, service("default", "db", "10.0.0.2", v1.ServicePort{Port: 1}))
	got, err := p.environment(p.want("web"), env)
	if err != nil || string(got[0].Value) != "http://10.0.0.2" || string(got[1].Value) != "none" {
		t.Errorf("%s, %v", shell(got), err)
	}
	seen := map[string]bool{}
	for _, v := range got {
		if seen[v.Key] {
			t.Errorf("%s is there twice", v.Key)
		}
		seen[v.Key] = true
	}
}

// A pod of the API server waits for the first list of services; a static pod does not.
func TestServicesAreWaitedFor(t *testing.T) {
	for source, waits := range map[string]bool{"": true, "api": true, "file": false} {
		s := spec(v1.RestartPolicyAlways, "", "web")
		s.Annotations = map[string]string{manifest.ConfigSourceAnnotation: source}
		p := facts(s)
		api := &server{}
		env := &Env{Node: &Node{}, Objects: &api.store, Out: &api.out}
		if p.watch(env); p.envReady(p.want("web"), env) == waits {
			t.Errorf("source %q: ready %v before services are listed", source, !waits)
		}
		api.store.Take(&world.WatchFailing{Watch: 1,
			Err: world.Errorf(world.KindUnavailable, "", "")}, t0)
		_, err := p.environment(p.want("web"), env)
		if !p.envReady(p.want("web"), env) || (err != nil) != waits {
			t.Errorf("source %q: %v while the server is away", source, err)
		}
		if api.tell(); !p.envReady(p.want("web"), env) {
			t.Errorf("source %q: not ready after services are listed", source)
		}
	}
}
