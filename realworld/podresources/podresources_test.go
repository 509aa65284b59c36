package podresources

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func pod(name string, phase v1.PodPhase, containers ...string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	p.Status.Phase = phase
	for _, c := range containers {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: c})
	}
	return p
}

// socketDir returns a temporary directory whose path is short enough for a socket in it.
func socketDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pr")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// startServer starts a server and returns a client and the root directory.
func startServer(t *testing.T, pods func(context.Context) ([]*v1.Pod, error)) (
	api.PodResourcesListerClient, string) {
	t.Helper()
	root := socketDir(t)
	server, err := Listen(Options{RootDir: root, Pods: pods})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient("unix://"+Socket(root),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(conn.Close(), server.Close()); err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(Socket(root)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the socket is left: %v", err)
		}
	})
	return api.NewPodResourcesListerClient(conn), root
}

func these(pods ...*v1.Pod) func(context.Context) ([]*v1.Pod, error) {
	return func(context.Context) ([]*v1.Pod, error) { return pods, nil }
}

func TestList(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	web := pod("web", v1.PodRunning, "web", "log")
	web.Spec.InitContainers = []v1.Container{{Name: "setup"}, {Name: "proxy", RestartPolicy: &always}}
	client, _ := startServer(t, these(
		web, pod("job", v1.PodSucceeded, "c"), pod("bad", v1.PodFailed, "c"),
		pod("new", v1.PodPending, "c")))
	got, err := client.List(t.Context(), &api.ListPodResourcesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	want := &api.ListPodResourcesResponse{PodResources: []*api.PodResources{
		{Name: "web", Namespace: "default", Containers: []*api.ContainerResources{
			{Name: "proxy"}, {Name: "web"}, {Name: "log"}}},
		{Name: "new", Namespace: "default", Containers: []*api.ContainerResources{{Name: "c"}}},
	}}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestGet(t *testing.T) {
	old, now := pod("web", v1.PodRunning, "old"), pod("web", v1.PodPending, "new")
	old.DeletionTimestamp = &metav1.Time{}
	for _, pods := range [][]*v1.Pod{{old, now}, {now, old}} {
		client, _ := startServer(t, these(pods...))
		got, err := client.Get(t.Context(), &api.GetPodResourcesRequest{PodNamespace: "default",
			PodName: "web"})
		if err != nil || got.PodResources.Containers[0].Name != "new" {
			t.Errorf("of two pods of a name the answer is %v, %v", got, err)
		}
		_, err = client.Get(t.Context(), &api.GetPodResourcesRequest{PodNamespace: "other",
			PodName: "web"})
		if status.Code(err) != codes.NotFound ||
			status.Convert(err).Message() != "pod web in namespace other not found" {
			t.Errorf("of no pod the answer is %v", err)
		}
	}
}

func TestNothingIsAllocatable(t *testing.T) {
	client, _ := startServer(t, these())
	got, err := client.GetAllocatableResources(t.Context(), &api.AllocatableResourcesRequest{})
	if err != nil || len(got.CpuIds)+len(got.Devices)+len(got.Memory) > 0 {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestTheAgentDoesNotAnswer(t *testing.T) {
	client, _ := startServer(t, func(ctx context.Context) ([]*v1.Pod, error) {
		if _, limited := ctx.Deadline(); !limited {
			t.Error("a call may take for ever")
		}
		return nil, errors.New("stuck")
	})
	_, err := client.List(t.Context(), &api.ListPodResourcesRequest{})
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "stuck") {
		t.Errorf("the answer is %v", err)
	}
}

// Calls above the rate limit are refused, and send no request to the core.
func TestLimit(t *testing.T) {
	var asked, refused atomic.Int64
	client, _ := startServer(t, func(context.Context) ([]*v1.Pod, error) {
		asked.Add(1)
		return nil, nil
	})
	began := time.Now()
	var calls sync.WaitGroup
	for range 200 {
		calls.Go(func() {
			_, err := client.List(t.Context(), &api.ListPodResourcesRequest{})
			if status.Code(err) == codes.ResourceExhausted {
				refused.Add(1)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	allowed := int64(burst + qps*time.Since(began).Seconds() + 1)
	if asked.Load() < burst || asked.Load() > allowed || asked.Load()+refused.Load() != 200 {
		t.Errorf("%d calls were answered, %d refused; want %d to %d answered", asked.Load(),
			refused.Load(), burst, allowed)
	}
}

func TestPermissions(t *testing.T) {
	_, root := startServer(t, these())
	for path, want := range map[string]fs.FileMode{Socket(root): 0o660,
		filepath.Dir(Socket(root)): 0o750} {
		info, err := os.Lstat(path)
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s has %v, %v; want %v", path, info.Mode(), err, want)
		}
	}
}

// A stale socket of a killed agent is replaced. A socket that a process serves is not.
func TestStaleSocket(t *testing.T) {
	root := socketDir(t)
	if err := os.MkdirAll(filepath.Dir(Socket(root)), 0o755); err != nil {
		t.Fatal(err)
	}
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: Socket(root), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(Options{RootDir: root}); err == nil ||
		!strings.Contains(err.Error(), "serves it already") {
		t.Errorf("a socket that somebody serves was taken: %v", err)
	}
	stale.SetUnlinkOnClose(false) // as if it had been killed
	if err := stale.Close(); err != nil {
		t.Fatal(err)
	}
	server, err := Listen(Options{RootDir: root})
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Close(); err != nil {
		t.Error(err)
	}
}

// A file that is not a socket is not removed: a link could lead anywhere.
func TestNoSocketIsRemoved(t *testing.T) {
	for name, make := range map[string]func(path string) error{
		"file":      func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"directory": func(path string) error { return os.Mkdir(path, 0o700) },
		"link":      func(path string) error { return os.Symlink("/etc/passwd", path) },
	} {
		root := socketDir(t)
		if err := os.MkdirAll(filepath.Dir(Socket(root)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := make(Socket(root)); err != nil {
			t.Fatal(err)
		}
		if _, err := Listen(Options{RootDir: root}); err == nil ||
			!strings.Contains(err.Error(), Socket(root)) {
			t.Errorf("a %s: error %v, want one that names it", name, err)
		}
		if _, err := os.Lstat(Socket(root)); err != nil {
			t.Errorf("the %s has gone: %v", name, err)
		}
	}
}

func TestLongPath(t *testing.T) {
	root := filepath.Join(socketDir(t), strings.Repeat("x", 120))
	if _, err := Listen(Options{RootDir: root}); err == nil ||
		!strings.Contains(err.Error(), "bytes at most") {
		t.Errorf("error %v, want one that says how long it may be", err)
	}
}

// Clients that send nothing do not block others, and are disconnected by Close.
func TestSilentClients(t *testing.T) {
	client, root := startServer(t, these())
	for range 8 {
		conn, err := net.Dial("unix", Socket(root))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	if _, err := client.List(t.Context(), &api.ListPodResourcesRequest{}); err != nil {
		t.Error(err)
	}
}

func TestClosingNothing(t *testing.T) {
	var server *Server
	if err := server.Close(); err != nil {
		t.Error(err)
	}
}
