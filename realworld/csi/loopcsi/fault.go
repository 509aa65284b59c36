package loopcsi

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Fault is what happens to calls of one name.
type Fault struct {
	// Delay precedes the effect, which takes place even if the caller has given up meanwhile: its
	// outcome is then unknown to the caller.
	Delay  time.Duration
	Before codes.Code // an error instead of the effect
	After  codes.Code // an error instead of the answer, after the effect
	Times  int        // how many calls are affected; zero: all
}

// ParseFault reads a fault as in "NodeStageVolume:delay=2s,after=UNAVAILABLE,times=3".
func ParseFault(text string) (call string, f Fault, err error) {
	call, fields, _ := strings.Cut(text, ":")
	for field := range strings.SplitSeq(fields, ",") {
		key, value, _ := strings.Cut(field, "=")
		switch key {
		case "delay":
			f.Delay, err = time.ParseDuration(value)
		case "before":
			err = f.Before.UnmarshalJSON([]byte(strconv.Quote(value)))
		case "after":
			err = f.After.UnmarshalJSON([]byte(strconv.Quote(value)))
		case "times":
			f.Times, err = strconv.Atoi(value)
		default:
			err = fmt.Errorf("%q: want delay, before, after or times", key)
		}
		if err != nil {
			return "", Fault{}, fmt.Errorf("fault %q: %w", text, err)
		}
	}
	return call, f, nil
}

// faults are the faults in effect, by call.
type faults struct {
	mu    sync.Mutex
	calls map[string]Fault
	log   func(line string)
	ended chan struct{}
	once  sync.Once
}

func newFaults(log func(string)) *faults {
	if log == nil {
		log = func(string) {}
	}
	return &faults{calls: map[string]Fault{}, log: log, ended: make(chan struct{})}
}

// end ends all delays.
func (f *faults) end() { f.once.Do(func() { close(f.ended) }) }

func (f *faults) inject(call string, fault Fault) error {
	isCall := func(m grpc.MethodDesc) bool { return m.MethodName == call }
	if !slices.ContainsFunc(slices.Concat(csi.Identity_ServiceDesc.Methods,
		csi.Controller_ServiceDesc.Methods, csi.Node_ServiceDesc.Methods), isCall) {
		return fmt.Errorf("CSI has no call %q", call)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.calls, call)
	if fault != (Fault{}) {
		f.calls[call] = fault
	}
	return nil
}

// take returns the fault of a call, and counts it.
func (f *faults) take(call string) Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	fault := f.calls[call]
	if fault.Times == 1 {
		delete(f.calls, call)
	} else if fault.Times > 1 {
		left := fault
		left.Times--
		f.calls[call] = left
	}
	return fault
}

func (f *faults) intercept(ctx context.Context, request any, info *grpc.UnaryServerInfo,
	handle grpc.UnaryHandler) (any, error) {
	call := path.Base(info.FullMethod)
	fault := f.take(call)
	if fault.Delay > 0 {
		f.log(fmt.Sprintf("%s%s: delayed by %v", call, subjectOf(request), fault.Delay))
		select {
		case <-time.After(fault.Delay):
		case <-f.ended:
			return nil, status.Error(codes.Unavailable, "the driver ends")
		}
	}
	if fault.Before != codes.OK {
		return nil, status.Errorf(fault.Before, "injected before %s", call)
	}
	// The caller's deadline must not interrupt the effect.
	answer, err := handle(context.WithoutCancel(ctx), request)
	if err == nil && fault.After != codes.OK {
		return nil, status.Errorf(fault.After, "injected after %s", call)
	}
	return answer, err
}

// logCalls writes a line for each call, and gives errors without a code the code INTERNAL.
func logCalls(log func(string)) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo,
		handle grpc.UnaryHandler) (any, error) {
		start := time.Now()
		answer, err := handle(ctx, request)
		if _, has := status.FromError(err); !has {
			err = status.Error(codes.Internal, err.Error())
		}
		if log != nil {
			line := path.Base(info.FullMethod) + subjectOf(request)
			log(fmt.Sprintf("%s: %v in %v %s", line, status.Code(err),
				time.Since(start).Round(time.Millisecond), status.Convert(err).Message()))
		}
		return answer, err
	}
}

// subjectOf returns the ID and paths of a request: never its secrets.
func subjectOf(request any) string {
	var b strings.Builder
	add := func(key, value string) {
		if value != "" {
			fmt.Fprintf(&b, " %s=%q", key, value)
		}
	}
	if r, has := request.(interface{ GetName() string }); has {
		add("name", r.GetName())
	}
	if r, has := request.(interface{ GetVolumeId() string }); has {
		add("volume", r.GetVolumeId())
	}
	if r, has := request.(interface{ GetStagingTargetPath() string }); has {
		add("staging", r.GetStagingTargetPath())
	}
	if r, has := request.(interface{ GetTargetPath() string }); has {
		add("target", r.GetTargetPath())
	}
	return b.String()
}
