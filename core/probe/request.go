package probe

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/budget"
	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

// Target is the container that is probed.
type Target struct {
	ContainerID string
	Host        string // the pod's IP, or the node's for a pod in the host's network
	Ports       []v1.ContainerPort
}

// NewRequest returns the request of a handler to a container, as the body of an effect. It fails if
// the handler names a port that the container does not have. The timeout is for commands, which the
// runtime then kills; zero: none.
func NewRequest(h *v1.ProbeHandler, to Target, timeout time.Duration) (any, error) {
	switch {
	case h.Exec != nil:
		return &runtimeapi.ExecSyncRequest{
			ContainerId: to.ContainerID, Cmd: h.Exec.Command,
			Timeout: int64((timeout + time.Second - 1) / time.Second),
		}, nil
	case h.HTTPGet != nil:
		return to.httpGet(h.HTTPGet)
	case h.TCPSocket != nil:
		port, err := to.port(h.TCPSocket.Port)
		if err != nil {
			return nil, err
		}
		return &world.TCPConnect{Host: to.host(h.TCPSocket.Host), Port: port}, nil
	case h.GRPC != nil:
		check := &world.GRPCCheck{Host: to.Host, Port: h.GRPC.Port}
		if h.GRPC.Service != nil {
			check.Service = *h.GRPC.Service
		}
		return check, nil
	}
	return nil, fmt.Errorf("it has no handler")
}

func (to Target) httpGet(h *v1.HTTPGetAction) (any, error) {
	port, err := to.port(h.Port)
	if err != nil {
		return nil, err
	}
	get := &world.HTTPGet{
		Scheme: strings.ToLower(string(h.Scheme)), Host: to.host(h.Host), Port: port,
		Path: "/" + strings.TrimPrefix(h.Path, "/"),
	}
	if get.Scheme == "" {
		get.Scheme = "http"
	}
	for _, header := range h.HTTPHeaders {
		get.Headers = append(get.Headers, world.HTTPHeader{Name: header.Name, Value: header.Value})
	}
	return get, nil
}

func (to Target) host(specified string) string {
	if specified != "" {
		return specified
	}
	return to.Host
}

// port returns the number of a port, which may be given by name.
func (to Target) port(port intstr.IntOrString) (int32, error) {
	if port.Type == intstr.Int {
		return port.IntVal, nil
	}
	for i := range to.Ports {
		if to.Ports[i].Name == port.StrVal {
			return to.Ports[i].ContainerPort, nil
		}
	}
	if n, err := strconv.ParseInt(port.StrVal, 10, 32); err == nil {
		return int32(n), nil
	}
	return 0, fmt.Errorf("the container has no port named %q", budget.Cut(port.StrVal, quotedMax))
}

// Interpret returns the result of a completed probe, with a message for a failure; a success with a
// message has a warning. A runtime that cannot run a command, or does not respond, leaves the
// result unknown.
func Interpret(r op.Record, ev world.Event) (Result, string) {
	if ev.Err != nil {
		return interpretError(r, ev)
	}
	switch body := ev.Body.(type) {
	case *runtimeapi.ExecSyncResponse:
		if body.ExitCode != 0 {
			return Failure, output(body)
		}
	case *world.HTTPGot:
		switch {
		case !body.RedirectedToOtherHost && (body.Status < 200 || body.Status >= 400):
			return Failure, fmt.Sprintf("HTTP probe failed with statuscode: %d", body.Status)
		case body.RedirectedToOtherHost || body.Status >= 300:
			return Success, "Probe terminated redirects, Response body: " +
				strings.ToValidUTF8(string(body.Body), "\uFFFD")
		}
	case *world.GRPCChecked:
		if body.Status != "SERVING" {
			return Failure, fmt.Sprintf("service unhealthy (responded with %q)", body.Status)
		}
	}
	return Success, ""
}

func interpretError(r op.Record, ev world.Event) (Result, string) {
	if ev.Err.Has(world.KindCanceled) || r.Refused {
		return Unknown, "" // the request was never sent
	}
	if r.Call != "ExecSync" {
		return Failure, ev.Err.Message
	}
	if ev.Err.Has(world.KindTimeout) && ev.Time.Before(r.Deadline) {
		return Failure, "command timed out"
	}
	return Unknown, ""
}

// IsRetryable reports whether a completed probe without a result is tried again at once: the
// runtime returned an error. A runtime that does not respond is not asked again before the next
// period.
func IsRetryable(r op.Record, ev world.Event) bool {
	return ev.Err != nil && r.Call == "ExecSync" && !r.Refused &&
		!ev.Err.Has(world.KindCanceled) && !ev.Err.Has(world.KindTimeout)
}

// TimeoutMessage returns the message of a probe whose request had no response in time, in the
// kubelet's words, with the first bytes of a command or URL.
func TimeoutMessage(request any, timeout time.Duration) string {
	switch m := request.(type) {
	case *runtimeapi.ExecSyncRequest:
		return fmt.Sprintf("command timed out: %q timed out after %v", joinCut(m.Cmd), timeout)
	case *world.HTTPGet:
		url := m.Scheme + "://" + shortAddress(m.Host, m.Port) + budget.Cut(m.Path, quotedMax)
		return fmt.Sprintf("Get %q: context deadline exceeded (Client.Timeout exceeded while awaiting "+
			"headers)", budget.Cut(url, quotedMax))
	case *world.TCPConnect:
		return fmt.Sprintf("dial tcp %s: i/o timeout", shortAddress(m.Host, m.Port))
	case *world.GRPCCheck:
		return fmt.Sprintf("timeout: health rpc did not complete within %v", timeout)
	}
	return "no response in time"
}

// quotedMax limits what a message quotes of a spec, in bytes: a quoted byte takes up to four, and
// the rest of the message is to follow (budget.MessageMax).
const quotedMax = 2048

// joinCut returns the first bytes of a command.
func joinCut(command []string) string {
	var b strings.Builder
	for i, text := range command {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(text[:min(len(text), quotedMax)])
		if b.Len() > quotedMax {
			break
		}
	}
	return budget.Cut(b.String(), quotedMax)
}

func shortAddress(host string, port int32) string {
	return Address(budget.Cut(host, quotedMax), port)
}

// Address returns a host and a port as one text.
func Address(host string, port int32) string {
	if strings.Contains(host, ":") {
		host = "[" + host + "]" // IPv6
	}
	return fmt.Sprintf("%s:%d", host, port)
}

// outputMax limits the output of a command in a message, in bytes, as in the kubelet
// (maxReadLength in pkg/probe/exec).
const outputMax = 10 << 10

func output(r *runtimeapi.ExecSyncResponse) string {
	text := string(r.Stdout) + string(r.Stderr)
	if len(text) > outputMax {
		text = text[:outputMax]
	}
	return strings.ToValidUTF8(text, "")
}
