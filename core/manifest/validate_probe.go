package manifest

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// probes is about a container's probes and hooks.
func (v *rules) probes(c *v1.Container, spec *v1.PodSpec, p *field.Path) {
	graceSeconds := *spec.TerminationGracePeriodSeconds
	v.probe(c.LivenessProbe, p.Child("livenessProbe"), true)
	v.probe(c.StartupProbe, p.Child("startupProbe"), true)
	v.probe(c.ReadinessProbe, p.Child("readinessProbe"), false)
	if c.Lifecycle == nil {
		return
	}
	q := p.Child("lifecycle")
	v.hook(c.Lifecycle.PostStart, q.Child("postStart"), graceSeconds)
	v.hook(c.Lifecycle.PreStop, q.Child("preStop"), graceSeconds)
	if signal := c.Lifecycle.StopSignal; signal != nil {
		if spec.OS == nil {
			v.add(field.Required(field.NewPath("spec", "os", "name"), "a stop signal needs it"))
		}
		if !strings.HasPrefix(string(*signal), "SIG") {
			v.invalid(q.Child("stopSignal"), *signal, "must be the name of a signal, as SIGTERM")
		}
	}
}

// probe is about one probe; restarts says that failing it restarts the container.
func (v *rules) probe(probe *v1.Probe, p *field.Path, restarts bool) {
	if probe == nil {
		return
	}
	v.handler(probe.Exec, probe.HTTPGet, probe.TCPSocket, p, probe.GRPC != nil)
	if probe.GRPC != nil {
		v.within(p.Child("grpc", "port"), int64(probe.GRPC.Port), 1, 65535)
	}
	for _, number := range []struct {
		name  string
		value int32
	}{
		{"initialDelaySeconds", probe.InitialDelaySeconds},
		{"timeoutSeconds", probe.TimeoutSeconds},
		{"periodSeconds", probe.PeriodSeconds},
		{"successThreshold", probe.SuccessThreshold},
		{"failureThreshold", probe.FailureThreshold},
	} {
		v.notNegative(p.Child(number.name), int64(number.value))
	}
	if restarts && probe.SuccessThreshold != 1 {
		v.invalid(p.Child("successThreshold"), probe.SuccessThreshold, "must be 1")
	}
	grace := probe.TerminationGracePeriodSeconds
	switch {
	case grace == nil:
	case !restarts:
		v.add(field.Forbidden(p.Child("terminationGracePeriodSeconds"),
			"a readiness probe ends nothing"))
	case *grace <= 0:
		v.invalid(p.Child("terminationGracePeriodSeconds"), *grace, "must be more than 0")
	}
}

func (v *rules) hook(hook *v1.LifecycleHandler, p *field.Path, graceSeconds int64) {
	if hook == nil {
		return
	}
	v.handler(hook.Exec, hook.HTTPGet, hook.TCPSocket, p, hook.Sleep != nil)
	if hook.Sleep != nil {
		v.within(p.Child("sleep", "seconds"), hook.Sleep.Seconds, 0, graceSeconds)
	}
}

// handler is about what probes and hooks have in common; other says that there is one besides.
func (v *rules) handler(exec *v1.ExecAction, get *v1.HTTPGetAction, tcp *v1.TCPSocketAction,
	p *field.Path, other bool) {
	v.exactlyOne(p, "a handler", exec != nil, get != nil, tcp != nil, other)
	if exec != nil && len(exec.Command) == 0 {
		v.add(field.Required(p.Child("exec", "command"), ""))
	}
	if get != nil {
		q := p.Child("httpGet")
		v.port(q.Child("port"), get.Port)
		oneOf(v, q.Child("scheme"), get.Scheme, v1.URISchemeHTTP, v1.URISchemeHTTPS)
		for i, header := range get.HTTPHeaders {
			v.each(q.Child("httpHeaders").Index(i).Child("name"), header.Name,
				validation.IsHTTPHeaderName(header.Name))
		}
	}
	if tcp != nil {
		v.port(p.Child("tcpSocket", "port"), tcp.Port)
	}
}

// port checks a port that may be given by name.
func (v *rules) port(p *field.Path, port intstr.IntOrString) {
	if port.Type == intstr.Int {
		v.within(p, int64(port.IntVal), 1, 65535)
		return
	}
	v.each(p, port.StrVal, validation.IsValidPortName(port.StrVal))
}
