package probe

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

// Target is who is asked.
type Target struct {
	ContainerID string
	Host        string // the pod's IP, or the node's for a pod with its network
	Ports       []v1.ContainerPort
}

// Request is what a handler asks of a container, as the body of an effect. It fails if the spec
// names a port that the container does not have. The timeout is for commands: the runtime ends
// one that takes longer; zero is none.
func Request(h *v1.ProbeHandler, to Target, timeout time.Duration) (any, error) {
	switch {
	case h.Exec != nil:
		return &runtimeapi.ExecSyncRequest{
			ContainerId: to.ContainerID, Cmd: h.Exec.Command,
			Timeout: int64((timeout + time.Second - 1) / time.Second),
		}, nil
	case h.HTTPGet != nil:
		return to.get(h.HTTPGet)
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

func (to Target) get(h *v1.HTTPGetAction) (any, error) {
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

func (to Target) host(named string) string {
	if named != "" {
		return named
	}
	return to.Host
}

// port is the number of a port, which may be given by the name of one of the container's.
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
	return 0, fmt.Errorf("the container has no port named %q", port.StrVal)
}

// Judge says what the answer to a probe means, and why if it is not good. A runtime that cannot
// run a command, or does not answer at all, says nothing about the container.
func Judge(r op.Record, ev world.Event) (Result, string) {
	if ev.Err != nil {
		return judgeError(r, ev)
	}
	switch body := ev.Body.(type) {
	case *runtimeapi.ExecSyncResponse:
		if body.ExitCode != 0 {
			return Bad, output(body)
		}
	case *world.HTTPGot:
		if !body.Elsewhere && (body.Status < 200 || body.Status >= 400) {
			return Bad, fmt.Sprintf("HTTP probe failed with statuscode: %d", body.Status)
		}
	case *world.GRPCChecked:
		if body.Status != "SERVING" {
			return Bad, fmt.Sprintf("service unhealthy (responded with %q)", body.Status)
		}
	}
	return Good, ""
}

func judgeError(r op.Record, ev world.Event) (Result, string) {
	if ev.Err.Has(world.KindCanceled) {
		return Undecided, "" // it was never sent
	}
	if r.Call != "ExecSync" {
		return Bad, ev.Err.Message
	}
	if ev.Err.Has(world.KindTimeout) && ev.Time.Before(r.Deadline) {
		return Bad, "command timed out"
	}
	return Undecided, ""
}

// outputMax is how much of a command's output is kept, in bytes.
const outputMax = 1024

func output(r *runtimeapi.ExecSyncResponse) string {
	text := strings.TrimSpace(string(r.Stdout) + string(r.Stderr))
	if len(text) > outputMax {
		text = text[:outputMax]
	}
	return strings.ToValidUTF8(text, "")
}
