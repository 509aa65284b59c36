package nodelog

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"seedlet.dev/realworld/porttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// journal is a fake journalctl: it lists units, and otherwise prints its arguments and fails.
const journal = `#!/bin/sh
case "$*" in
*--field=*) printf 'kubelet.service\ncron.service\ninit.scope\n';;
*hangs*) exec sleep 1000;;
*) for a in "$@"; do echo "$a"; done; echo trouble >&2; exit 1;;
esac
`

type machine struct {
	t       *testing.T
	root    string
	server  *Server
	handler http.Handler
}

func newMachine(t *testing.T, query bool) *machine {
	t.Helper()
	m := &machine{t: t, root: t.TempDir()}
	m.server = New(Options{Dir: filepath.Join(m.root, "log"), Query: query, WriteTimeout: time.Minute})
	m.server.journalctl = filepath.Join(m.root, "journalctl")
	mux := http.NewServeMux()
	m.server.Register(mux)
	m.handler = mux
	m.must(os.WriteFile(m.server.journalctl, []byte(journal), 0o700))
	m.must(os.Mkdir(filepath.Join(m.root, "log"), 0o700))
	m.write("secret", "not to be seen")
	m.write("log/plain.log", "plain\n")
	m.write("log/service/service.log", "of the service\n")
	m.write("log/pods/p/0.log", "of a pod\n")
	return m
}

func (m *machine) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) write(name, text string) {
	m.t.Helper()
	path := filepath.Join(m.root, name)
	m.must(os.MkdirAll(filepath.Dir(path), 0o700))
	m.must(os.WriteFile(path, []byte(text), 0o600))
}

func (m *machine) get(path string) (int, string) {
	rec := httptest.NewRecorder()
	m.handler.ServeHTTP(rec, httptest.NewRequest("GET", path, nil))
	return rec.Code, rec.Body.String()
}

func (m *machine) wants(path string, code int, texts ...string) {
	m.t.Helper()
	got, body := m.get(path)
	if got != code {
		m.t.Errorf("%s gives %d %q, want %d", path, got, body, code)
	}
	for _, want := range texts {
		if !strings.Contains(body, want) {
			m.t.Errorf("%s gives %q, want %q in it", path, body, want)
		}
	}
	if strings.Contains(body, "not to be seen") {
		m.t.Errorf("%s shows the secret", path)
	}
}

func TestFiles(t *testing.T) {
	for _, query := range []bool{false, true} {
		m := newMachine(t, query)
		m.wants("/logs/", 200, `<a href="plain.log">plain.log</a>`, `<a href="pods/">pods/</a>`)
		m.wants("/logs/plain.log", 200, "plain\n")
		m.wants("/logs/pods/p/0.log", 200, "of a pod\n")
		m.wants("/logs/pods/p/", 200, `<a href="0.log">`)
		m.wants("/logs/none", 404)
		m.wants("/logs/a%00b", 404)
		m.wants("/logs/..%2fsecret", 404)
		m.wants("/logs/%2e%2e/secret", 404)
		rec := httptest.NewRecorder()
		m.handler.ServeHTTP(rec, httptest.NewRequest("POST", "/logs/plain.log", nil))
		if rec.Code != http.StatusMethodNotAllowed {
			t.Errorf("POST gives %d", rec.Code)
		}
	}
	m := newMachine(t, false)
	m.wants("/logs/?query=kubelet", 200, "plain.log") // queries are disabled
}

// Symbolic links are followed unless they lead out of the directory.
func TestLinks(t *testing.T) {
	m := newMachine(t, false)
	log := filepath.Join(m.root, "log")
	for name, to := range map[string]string{
		"in": "plain.log", "whole": filepath.Join(log, "pods/p/0.log"), "dir": "pods",
		"out": "../secret", "far": filepath.Join(m.root, "secret"), "up": "..",
		"sly":  filepath.Join(log, "../secret"),
		"loop": "loop", "round": filepath.Join(log, "round"), "nowhere": "none",
		"chain": filepath.Join(log, "out"),
	} {
		m.must(os.Symlink(to, filepath.Join(log, name)))
	}
	m.must(unix.Mkfifo(filepath.Join(log, "pipe"), 0o600))
	m.wants("/logs/in", 200, "plain\n")
	m.wants("/logs/whole", 200, "of a pod\n")
	m.wants("/logs/dir/p/0.log", 200, "of a pod\n")
	for _, name := range []string{"out", "far", "up/secret", "sly", "loop", "round", "nowhere",
		"chain"} {
		m.wants("/logs/"+name, 404)
	}
	m.wants("/logs/pipe", 403)
}

func TestQuery(t *testing.T) {
	m := newMachine(t, true)
	m.wants("/logs/?query=kubelet", 200,
		"--utc\n--no-pager\n--output=short-precise\n--unit=kubelet\ntrouble\n")
	m.wants("/logs/?query=kubelet&query=cron.service&tailLines=5&boot=-1&pattern=a.*b%20--x"+
		"&sinceTime=2026-01-01T00:00:00Z&untilTime=2026-01-01T02:00:00%2B01:00", 200,
		"--since=@1767225600\n--until=@1767229200\n--lines=5\n--unit=kubelet\n"+
			"--unit=cron.service\n--grep=a.*b --x\n--boot=-1\n")
	m.wants("/logs/?query=plain", 200, "plain\n")
	m.wants("/logs/?query=plain.log", 200, "plain\n")
	m.wants("/logs/?query=service", 200, "of the service\n")
	m.wants("/logs/?query=service&query=kubelet", 200, "--unit=kubelet", "of the service\n")
	m.wants("/logs/?query=none", 200, "\nlog not found for none\n")
	m.wants("/logs/?query=..", 200, "\nlog not found for ..\n")
	m.wants("/logs/?query=plain&tailLines=1", 200, "try without specifying options")
	m.wants("/logs/?query=/plain.log", 200, "plain\n")
	m.wants("/logs/?query=/pods/", 200, `<a href="p/">p/</a>`)
	m.wants("/logs/?query=/pods", 200, `<a href="p/">p/</a>`)
	m.wants(`/logs/?query=pods%5Cp%5C0.log`, 200, "of a pod\n")
	m.must(os.Remove(m.server.journalctl))
	m.wants("/logs/?query=kubelet", 200, "log not found for kubelet")
	m.wants("/logs/?query=plain", 200, "plain\n")
}

func TestQueryErrors(t *testing.T) {
	m := newMachine(t, true)
	const bad, not = http.StatusBadRequest, http.StatusNotAcceptable
	m.wants("/logs/?query=", bad, "query: Invalid value", "may not be empty")
	m.wants("/logs/?query=%20", bad, "may not be empty")
	m.wants("/logs/?query=a&sinceTime=now&boot=x&tailLines=y", bad, "[sinceTime: Invalid value: "+
		`"now": invalid time format, boot: Invalid value`, "tailLines: Invalid value")
	m.wants("/logs/plain.log?query=kubelet", not, "path not allowed in query mode")
	m.wants("/logs/?tailLines=1", not, "query: Required value")
	m.wants("/logs/?query=a&query=/b", not, "cannot specify a file and service")
	m.wants("/logs/?query=/a&query=/b", not, "cannot specify more than one file")
	m.wants("/logs/?query=/plain.log&boot=0", not, "cannot specify file with options")
	m.wants("/logs/?query=/none", not, "no such file")
	m.wants("/logs/?query=/../secret", not, "query: Invalid value")
	m.wants("/logs/?query=a%3Bb", not, "input contains unsupported characters")
	m.wants("/logs/?query=a%20--file=x", not, "input contains unsupported characters")
	m.wants("/logs/?query="+strings.Repeat("a", 257), not, "length must be less than 256")
	m.wants("/logs/?query=a&query=b&query=c&query=d&query=e", not, "must have at most 4 items")
	m.wants("/logs/?query=a&boot=1", not, "boot: Invalid value", "must be less than 1")
	m.wants("/logs/?query=a&tailLines=-1", not, "between 0 and 100000")
	m.wants("/logs/?query=a&tailLines=100001", not, "between 0 and 100000")
	m.wants("/logs/?query=a&pattern=(", not, "pattern: Invalid value")
	m.wants("/logs/?query=a&pattern="+strings.Repeat("a", 1025), not, "at most 1024 bytes")
	m.wants("/logs/?query=a&sinceTime=2026-01-02T00:00:00Z&untilTime=2026-01-01T00:00:00Z", not,
		"untilTime: Invalid value", "must be after `sinceTime`")
}

// The number of concurrent queries is bounded. A client that disconnects ends its query, and
// another query is served then.
func TestQueryBounds(t *testing.T) {
	m := newMachine(t, true)
	server := httptest.NewServer(m.handler)
	defer server.Close()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, queriesMax)
	for range queriesMax {
		go func() {
			r, err := http.NewRequestWithContext(ctx, "GET",
				server.URL+"/logs/?query=kubelet&pattern=hangs", nil)
			if err == nil {
				var answer *http.Response
				if answer, err = http.DefaultClient.Do(r); err == nil {
					_, err = io.Copy(io.Discard, answer.Body)
					err = errors.Join(err, answer.Body.Close())
				}
			}
			done <- err
		}()
	}
	porttest.Eventually(t, "as many queries as there may be are in flight", func() bool {
		return m.server.queriesInFlight.Load() == queriesMax
	})
	m.wants("/logs/?query=kubelet", 503, "4 such requests")
	cancel()
	for range queriesMax {
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	porttest.Eventually(t, "no query is in flight", func() bool {
		return m.server.queriesInFlight.Load() == 0
	})
	m.wants("/logs/?query=kubelet", 200)
	http.DefaultClient.CloseIdleConnections()
}

// No request leads out of the directory, or adds an option to the arguments of journalctl.
func FuzzLogs(f *testing.F) {
	for _, seed := range [][2]string{{"plain.log", ""}, {"../secret", ""}, {"", "query=a&boot=-1"},
		{"up/secret", "query=/../secret"}, {"", "query=--file=x&pattern=--x"}} {
		f.Add(seed[0], seed[1])
	}
	root := f.TempDir()
	for _, err := range []error{
		os.Mkdir(filepath.Join(root, "log"), 0o700),
		os.WriteFile(filepath.Join(root, "secret"), []byte("secret"), 0o600),
		os.Symlink("..", filepath.Join(root, "log/up")),
	} {
		if err != nil {
			f.Fatal(err)
		}
	}
	f.Fuzz(func(t *testing.T, name, text string) {
		files := logTree{filepath.Join(root, "log")}
		if file, err := files.Open(name); err == nil {
			defer file.Close()
			if data, _ := io.ReadAll(file); string(data) == "secret" {
				t.Errorf("%q leads out", name)
			}
		}
		values, err := url.ParseQuery(text)
		if err != nil {
			return
		}
		q, err := parseQuery(values)
		if err != nil || q == nil || q.check(files) != nil {
			return
		}
		for i, arg := range q.arguments(q.services) {
			option, _, _ := strings.Cut(arg, "=")
			switch option {
			case "--utc", "--no-pager", "--output", "--since", "--until", "--lines", "--unit", "--grep",
				"--boot":
			default:
				t.Errorf("argument %d is %q", i, arg)
			}
		}
	})
}
