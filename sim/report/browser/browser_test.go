// Package browser tests the page of a run in headless Chromium. It is a module of its own, so that
// the driver of the browser is no dependency of the project.
package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// writePage replays a run and returns the file of its page.
func writePage(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "run.html")
	cmd := exec.CommandContext(t.Context(), "go", "run", "./cmd/seedsim", "replay", "mix",
		"--seed", "3", "--html", file)
	cmd.Dir = "../../.."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return file
}

// The page of the worst case of `seedsim whatif` shows the pods of the Deployment.
func TestWhatIf(t *testing.T) {
	dir := t.TempDir()
	manifest, file := filepath.Join(dir, "orders.yaml"), filepath.Join(dir, "worst.html")
	const deployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: orders}
spec:
  replicas: 2
  selector: {matchLabels: {app: orders}}
  template:
    metadata: {labels: {app: orders}}
    spec: {containers: [{name: api, image: "registry.test/orders:1"}]}
`
	if err := os.WriteFile(manifest, []byte(deployment), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "run", "./cmd/seedsim", "whatif", "-f", manifest,
		"--event", "reboot", "--runs", "3", "--html", file)
	cmd.Dir = "../../.."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	ctx := open(t, file)
	lanes := get[[]string](t, ctx, `report.run.lanes.filter((lane) => lane.pod < 0 &&
		lane.name.includes("orders-") && lane.spans.length > 0).map((lane) => lane.name)`)
	if len(lanes) != 2 {
		t.Errorf("the lanes of pods with something in them are %v, want two", lanes)
	}
	do(t, ctx, chromedp.KeyEvent("/"),
		chromedp.Evaluate("document.getElementById('query').value = ''", nil),
		chromedp.KeyEvent("StartContainer effect"), chromedp.KeyEvent(kb.Enter))
	if details := textOf(t, ctx, "#details"); !strings.Contains(details, "orders-") {
		t.Errorf("the details of a start do not name its pod: %s", details)
	}
}

// open opens a file in a browser. Whatever the page throws, logs or loads fails the test.
func open(t *testing.T, file string) context.Context {
	t.Helper()
	if _, err := exec.LookPath("chromium"); err != nil {
		t.Fatal("the test needs Debian's package chromium: ", err)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.WindowSize(1600, 1000),
		chromedp.ExecPath("chromium"), chromedp.NoSandbox) // which root cannot have
	ctx, stop := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(stop)
	ctx, stop = chromedp.NewContext(ctx)
	t.Cleanup(stop)
	chromedp.ListenTarget(ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			t.Errorf("the page has thrown %v", e.ExceptionDetails)
		case *log.EventEntryAdded:
			t.Errorf("the page has logged %s", e.Entry.Text)
		case *network.EventRequestWillBeSent:
			if e.Request.URL != "file://"+file {
				t.Errorf("the page loads %s", e.Request.URL)
			}
		}
	})
	do(t, ctx, network.Enable(), log.Enable(), chromedp.Navigate("file://"+file),
		chromedp.Poll("report.draws > 0", nil))
	return ctx
}

func do(t *testing.T, ctx context.Context, actions ...chromedp.Action) {
	t.Helper()
	if err := chromedp.Run(ctx, actions...); err != nil {
		t.Fatal(err)
	}
}

// get returns the value of an expression.
func get[T any](t *testing.T, ctx context.Context, expression string) T {
	t.Helper()
	var value T
	do(t, ctx, chromedp.Evaluate(expression, &value))
	return value
}

// press clicks on an element.
func press(t *testing.T, ctx context.Context, selector string) {
	t.Helper()
	place := get[[]float64](t, ctx, fmt.Sprintf(`(() => {
		const element = document.querySelector(%q);
		element.scrollIntoView({ block: "nearest" });
		const box = element.getBoundingClientRect();
		return [box.left + box.width / 2, box.top + box.height / 2];
	})()`, selector))
	do(t, ctx, chromedp.MouseClickXY(place[0], place[1]))
}

func textOf(t *testing.T, ctx context.Context, selector string) string {
	t.Helper()
	return get[string](t, ctx, fmt.Sprintf("document.querySelector(%q).textContent", selector))
}

const length = "report.view.to - report.view.from"

func TestClick(t *testing.T) {
	ctx := open(t, writePage(t))
	// An effect with an answer. The view is so close that nothing else is at its place.
	do(t, ctx, chromedp.Evaluate(`
		var op = report.run.ops.find(([, , , , answer]) => answer >= 0);
		var at = report.run.rows.at[op[0]];
		report.setRange(at - 2000, at + 2000); report.select(op[0], true); report.draw();
		var box = document.getElementById("canvas").getBoundingClientRect();
		var y = box.top + report.centreOf(op[0], document.getElementById("scroller").scrollTop);
		var x = box.left + report.x(at); report.select(-1)`, nil))
	place := get[[]float64](t, ctx, "[x, y]")
	do(t, ctx, chromedp.MouseClickXY(place[0], place[1]))
	heading := textOf(t, ctx, "#details h2")
	details := textOf(t, ctx, "#details")
	if heading == "Nothing selected" || !strings.Contains(details, "Caused by") ||
		!strings.Contains(details, "Effects") || !strings.Contains(details, "time") {
		t.Fatalf("after a click: %s: %s", heading, details)
	}
	// Its relations lead to others, and from the answer back to the effect.
	do(t, ctx, chromedp.Evaluate("report.select(op[0], true)", nil))
	press(t, ctx, fmt.Sprintf(`#details button[data-row="%d"]`, get[int](t, ctx, "op[4]")))
	if get[int](t, ctx, "report.view.selected") != get[int](t, ctx, "op[4]") {
		t.Error("the button of an answer does not select it")
	}
	press(t, ctx, "#details button")
	if get[int](t, ctx, "report.view.selected") != get[int](t, ctx, "op[0]") {
		t.Error("the cause of an answer is not its effect")
	}
	do(t, ctx, chromedp.KeyEvent(kb.Escape))
	if heading := textOf(t, ctx, "#details h2"); heading != "Nothing selected" {
		t.Errorf("after Escape: %s", heading)
	}
}

// A fact leads to the effect of the agent that caused it, and back.
func TestCauseOfFact(t *testing.T) {
	ctx := open(t, writePage(t))
	do(t, ctx, chromedp.Evaluate(`
		var names = (row) => report.run.strings[report.run.rows.name[row]];
		var fact = report.run.rows.kind.findIndex((kind, row) => kind === 2 &&
			names(row) === "ContainerExited" && report.run.rows.origin[row] >= 0);
		report.select(fact, true)`, nil))
	press(t, ctx, "#details button")
	const cause = "report.view.selected"
	if kind := get[int](t, ctx, "report.run.rows.kind["+cause+"]"); kind != 1 && kind != 3 {
		t.Fatalf("the cause of an exit is a row of kind %d: %s", kind, textOf(t, ctx, "#details h2"))
	}
	press(t, ctx, `#details button[data-row="`+fmt.Sprint(get[int](t, ctx, "fact"))+`"]`)
	if !get[bool](t, ctx, "report.view.selected === fact") {
		t.Errorf("the effects of the cause do not have the exit: %s", textOf(t, ctx, "#details"))
	}
}

func TestZoomAndPan(t *testing.T) {
	ctx := open(t, writePage(t))
	whole := get[float64](t, ctx, length)
	do(t, ctx, chromedp.KeyEvent("+"), chromedp.KeyEvent("+"))
	closer := get[float64](t, ctx, length)
	if closer > whole/2 {
		t.Errorf("%v after two +, %v before", closer, whole)
	}
	from := get[float64](t, ctx, "report.view.from")
	do(t, ctx, chromedp.KeyEvent(kb.ArrowRight))
	if after := get[float64](t, ctx, "report.view.from"); after <= from {
		t.Errorf("from %v to %v after →", from, after)
	}
	wheel := input.DispatchMouseEvent(input.MouseWheel, 800, 500).WithDeltaY(-120).WithDeltaX(0).
		WithModifiers(input.ModifierCtrl)
	do(t, ctx, wheel, chromedp.Poll(fmt.Sprintf("%s < %f", length, closer*0.9), nil))
	from = get[float64](t, ctx, "report.view.from")
	do(t, ctx, chromedp.MouseEvent(input.MousePressed, 800, 500, chromedp.ButtonLeft),
		chromedp.MouseEvent(input.MouseMoved, 700, 500, chromedp.ButtonLeft),
		chromedp.MouseEvent(input.MouseReleased, 700, 500, chromedp.ButtonLeft))
	if after := get[float64](t, ctx, "report.view.from"); after <= from {
		t.Errorf("from %v to %v after a drag to the left", from, after)
	}
	press(t, ctx, "#fit")
	if got := get[float64](t, ctx, length); got != whole {
		t.Errorf("%v after Fit, %v at first", got, whole)
	}
	do(t, ctx, chromedp.KeyEvent("c"))
	pressed := "document.getElementById('containers').ariaPressed"
	if got := get[string](t, ctx, pressed); got != "false" {
		t.Errorf("lanes of containers are shown: %s", got)
	}
}

func TestSearch(t *testing.T) {
	ctx := open(t, writePage(t))
	do(t, ctx, chromedp.KeyEvent("/"))
	if focused := get[string](t, ctx, "document.activeElement.id"); focused != "query" {
		t.Fatalf("/ has moved the focus to %q", focused)
	}
	// The driver types the slash as well, which a keyboard does not after the default is prevented.
	do(t, ctx, chromedp.Evaluate("document.getElementById('query').value = ''", nil),
		chromedp.KeyEvent("StartContainer effect"))
	hits := get[int](t, ctx, "report.view.hits.length")
	if want := fmt.Sprintf("%d matches", hits); hits < 2 || textOf(t, ctx, "#count") != want {
		t.Fatalf("count %q, want %q", textOf(t, ctx, "#count"), want)
	}
	do(t, ctx, chromedp.KeyEvent(kb.Enter))
	if got, want := textOf(t, ctx, "#count"), fmt.Sprintf("1 of %d", hits); got != want {
		t.Errorf("count %q, want %q", got, want)
	}
	if !get[bool](t, ctx, `report.view.selected === report.view.hits[0] &&
		report.view.hits.every((row) => report.run.rows.kind[row] === 1)`) {
		t.Errorf("selected: %s", textOf(t, ctx, "#details h2"))
	}
	press(t, ctx, "#next")
	press(t, ctx, "#previous")
	press(t, ctx, "#previous")
	if got, want := textOf(t, ctx, "#count"), fmt.Sprintf("%d of %d", hits, hits); got != want {
		t.Errorf("count %q, want %q", got, want)
	}
	if isVisible := get[bool](t, ctx, `report.run.rows.at[report.view.selected] >= report.view.from &&
		report.run.rows.at[report.view.selected] <= report.view.to`); !isVisible {
		t.Error("the match is not in the view")
	}
}

func TestDark(t *testing.T) {
	ctx := open(t, writePage(t))
	back := func() string {
		return get[string](t, ctx, "getComputedStyle(document.body).backgroundColor")
	}
	light := back()
	do(t, ctx, emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: "dark"}}))
	dark := back()
	if light != "rgb(255, 255, 255)" || dark == light {
		t.Errorf("%s in light, %s in dark", light, dark)
	}
	press(t, ctx, "#theme")
	if got := back(); got != light {
		t.Errorf("%s after the toggle", got)
	}
	press(t, ctx, "#theme")
	if got := back(); got != dark {
		t.Errorf("%s after the second toggle", got)
	}
}

var data = regexp.MustCompile(`(?s)(<script type="application/json" id="run">).*?(</script>)`)

// A page of a hundred thousand events of thirty pods is drawn in a few milliseconds. The time is
// logged, not judged: the machine may be busy.
func TestManyEvents(t *testing.T) {
	file := writePage(t)
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	run, err := json.Marshal(manyEvents())
	if err != nil {
		t.Fatal(err)
	}
	many := data.ReplaceAllFunc(page, func([]byte) []byte {
		return []byte(`<script type="application/json" id="run">` + string(run) + `</script>`)
	})
	if err := os.WriteFile(file, many, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx := open(t, file)
	times := get[[]float64](t, ctx, `[1, 0.5, 0.1, 0.01, 0.001].map((part) => {
		report.setRange(0, report.run.end * part);
		let most = 0;
		for (let i = 0; i < 10; i++) { report.draw(); most = Math.max(most, report.lastDraw); }
		return most;
	})`)
	t.Logf("the longest of ten draws of all, 1/2, 1/10, 1/100 and 1/1000: %.1f ms", times)
	if n := get[int](t, ctx, "report.run.rows.at.length"); n != 100_000 {
		t.Errorf("%d rows", n)
	}
}

// manyEvents is a run of a hundred thousand rows, half of them events, with their operations.
func manyEvents() map[string]any {
	const pods, count, apart = 30, 100_000, 3000
	lanes := []map[string]any{{"name": "node", "pod": -1, "spans": []int{}}}
	for i := range pods {
		pod, spans := len(lanes), [][]int{}
		for n := range 400 {
			from := n * count * apart / 400
			spans = append(spans, []int{from, from + count*apart/400, 1 + (n+i)%6, 0, 0})
		}
		lanes = append(lanes, map[string]any{"name": fmt.Sprint("web-", i), "pod": -1, "spans": spans},
			map[string]any{"name": "app", "pod": pod, "spans": spans})
	}
	column := map[string][]int{}
	var ops [][]int
	for i := range count {
		effect, op := i/2*2, i/2
		kind := 1 - i%2
		if kind == 1 {
			ops = append(ops, []int{i, op, i * apart, (i + 1) * apart, i + 1})
		}
		for name, value := range map[string]int{"at": i * apart, "kind": kind, "number": effect,
			"incarnation": 1, "name": 1, "text": 2, "lane": 1 + 2*(op%pods), "op": op, "origin": -1} {
			column[name] = append(column[name], value)
		}
	}
	return map[string]any{"title": "many", "end": count * apart, "healed": count * apart / 2,
		"strings": []string{"", "StartContainer", "a text"}, "lanes": lanes, "rows": column, "ops": ops,
		"bars": []int{}}
}
