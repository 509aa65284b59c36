package manifest

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// checkProbes checks the probes and hooks of a container.
func (v *validator) checkProbes(c *v1.Container, spec *v1.PodSpec, p *field.Path) {
	graceSeconds := *spec.TerminationGracePeriodSeconds
	v.checkProbe(c.LivenessProbe, p.Child("livenessProbe"), true)
	v.checkProbe(c.StartupProbe, p.Child("startupProbe"), true)
	v.checkProbe(c.ReadinessProbe, p.Child("readinessProbe"), false)
	if c.Lifecycle == nil {
		return
	}
	q := p.Child("lifecycle")
	v.checkHook(c.Lifecycle.PostStart, q.Child("postStart"), graceSeconds)
	v.checkHook(c.Lifecycle.PreStop, q.Child("preStop"), graceSeconds)
	if signal := c.Lifecycle.StopSignal; signal != nil {
		if spec.OS == nil {
			v.add(field.Required(field.NewPath("spec", "os", "name"), "a stop signal needs it"))
		}
		if !strings.HasPrefix(string(*signal), "SIG") {
			v.invalid(q.Child("stopSignal"), *signal, "must be the name of a signal, as SIGTERM")
		}
	}
}

// checkProbe checks one probe. If restarts is set, the container restarts when the probe fails.
func (v *validator) checkProbe(probe *v1.Probe, p *field.Path, restarts bool) {
	if probe == nil {
		return
	}
	v.checkHandler(probe.Exec, probe.HTTPGet, probe.TCPSocket, p, probe.GRPC != nil)
	if probe.GRPC != nil {
		v.inRange(p.Child("grpc", "port"), int64(probe.GRPC.Port), 1, 65535)
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

func (v *validator) checkHook(hook *v1.LifecycleHandler, p *field.Path, graceSeconds int64) {
	if hook == nil {
		return
	}
	v.checkHandler(hook.Exec, hook.HTTPGet, hook.TCPSocket, p, hook.Sleep != nil)
	if hook.Sleep != nil {
		v.inRange(p.Child("sleep", "seconds"), hook.Sleep.Seconds, 0, graceSeconds)
	}
}

// checkHandler checks the handlers that probes and hooks have in common. If other is set, there is
// a handler of another kind.
func (v *validator) checkHandler(exec *v1.ExecAction, get *v1.HTTPGetAction,
	tcp *v1.TCPSocketAction, p *field.Path, other bool) {
	v.exactlyOne(p, "a handler", exec != nil, get != nil, tcp != nil, other)
	if exec != nil && len(exec.Command) == 0 {
		v.add(field.Required(p.Child("exec", "command"), ""))
	}
	if get != nil {
		q := p.Child("httpGet")
		v.port(q.Child("port"), get.Port)
		oneOf(v, q.Child("scheme"), get.Scheme, v1.URISchemeHTTP, v1.URISchemeHTTPS)
		for i, header := range get.HTTPHeaders {
			v.addInvalid(q.Child("httpHeaders").Index(i).Child("name"), header.Name,
				validation.IsHTTPHeaderName(header.Name))
		}
	}
	if tcp != nil {
		v.port(p.Child("tcpSocket", "port"), tcp.Port)
	}
}

// port checks a port number or name.
func (v *validator) port(p *field.Path, port intstr.IntOrString) {
	if port.Type == intstr.Int {
		v.inRange(p, int64(port.IntVal), 1, 65535)
		return
	}
	v.addInvalid(p, port.StrVal, validation.IsValidPortName(port.StrVal))
}
