package nodelog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os/exec"
	"regexp/syntax"
	"strconv"
	"strings"
	"time"
)

// Bounds on a query, the kubelet's where it has them.
const (
	servicesMax     = 4
	serviceBytesMax = 256
	tailLinesMax    = 100_000
	patternBytesMax = 1024
	unitsBytesMax   = 1 << 20 // of the names of all units in the journal
)

// query is a parsed request: for one file, or for the logs of services.
type query struct {
	services []string
	files    []string
	since    *time.Time
	until    *time.Time
	tail     *int
	boot     *int
	pattern  string
}

// parseQuery parses the parameters of a request. The query is nil if there are none.
func parseQuery(values url.Values) (*query, error) {
	q := &query{pattern: values.Get("pattern")}
	for _, name := range values["query"] {
		switch {
		case strings.ContainsAny(name, `/\`):
			q.files = append(q.files, name)
		case strings.TrimSpace(name) != "":
			q.services = append(q.services, name)
		}
	}
	var errs []error
	if values.Has("query") && len(q.files)+len(q.services) == 0 {
		errs = append(errs, invalid("query", strings.Join(values["query"], ","), "may not be empty"))
	}
	errs = append(errs, parseTime(values.Get("sinceTime"), "sinceTime", &q.since),
		parseTime(values.Get("untilTime"), "untilTime", &q.until),
		parseNumber(values.Get("boot"), "boot", &q.boot),
		parseNumber(values.Get("tailLines"), "tailLines", &q.tail))
	if err := joinErrors(errs); err != nil {
		return nil, err
	}
	if len(q.files)+len(q.services) == 0 && !q.hasOptions() {
		return nil, nil
	}
	return q, nil
}

func parseTime(text, name string, to **time.Time) error {
	if text == "" {
		return nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return invalid(name, text, "invalid time format")
	}
	*to = &t
	return nil
}

func parseNumber(text, name string, to **int) error {
	if text == "" {
		return nil
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return invalid(name, text, "is not a whole number")
	}
	*to = &n
	return nil
}

func invalid(field, value, why string) error {
	return fmt.Errorf("%s: Invalid value: %q: %s", field, value, why)
}

// joinErrors joins errors in one line, as the kubelet does.
func joinErrors(errs []error) error {
	var texts []string
	for _, err := range errs {
		if err != nil {
			texts = append(texts, err.Error())
		}
	}
	switch len(texts) {
	case 0:
		return nil
	case 1:
		return errors.New(texts[0])
	}
	return fmt.Errorf("[%s]", strings.Join(texts, ", "))
}

func (q *query) hasOptions() bool {
	return q.since != nil || q.until != nil || q.tail != nil || q.boot != nil || q.pattern != ""
}

// check returns an error if a query violates the rules or names a file that does not exist.
func (q *query) check(t logTree) error {
	var errs []error
	for _, service := range q.services {
		errs = append(errs, checkService(service))
	}
	if len(q.services) > servicesMax {
		errs = append(errs, fmt.Errorf("query: Too many: %d: must have at most %d items",
			len(q.services), servicesMax))
	}
	errs = append(errs, q.checkNames(t))
	if q.since != nil && q.until != nil && q.since.After(*q.until) {
		errs = append(errs, invalid("untilTime", q.until.Format(time.RFC3339),
			"must be after `sinceTime`"))
	}
	if q.boot != nil && *q.boot > 0 {
		errs = append(errs, invalid("boot", strconv.Itoa(*q.boot), "must be less than 1"))
	}
	if q.tail != nil && (*q.tail < 0 || *q.tail > tailLinesMax) {
		errs = append(errs, invalid("tailLines", strconv.Itoa(*q.tail),
			fmt.Sprintf("must be between 0 and %d, inclusive", tailLinesMax)))
	}
	return joinErrors(append(errs, checkPattern(q.pattern)))
}

func (q *query) checkNames(t logTree) error {
	switch {
	case len(q.files)+len(q.services) == 0:
		return errors.New("query: Required value: cannot be empty with options")
	case len(q.files) > 0 && len(q.services) > 0:
		return invalid("query", fmt.Sprint(q.files, q.services), "cannot specify a file and service")
	case len(q.files) > 1:
		return invalid("query", fmt.Sprint(q.files), "cannot specify more than one file")
	case len(q.files) == 1 && q.hasOptions():
		return invalid("query", q.files[0], "cannot specify file with options")
	case len(q.files) == 1:
		f, err := t.Open(cleanFileName(q.files[0]))
		if err != nil {
			return invalid("query", q.files[0], err.Error())
		}
		return f.Close()
	}
	return nil
}

// cleanFileName returns the name of a file below the directory of logs. Clients may write it with a
// leading slash, or with the backslashes of Windows.
func cleanFileName(name string) string {
	return strings.Trim(strings.ReplaceAll(name, `\`, "/"), "/")
}

// checkService returns an error if the name of a service is not safe in an argument or a path.
func checkService(name string) error {
	if len(name) > serviceBytesMax {
		return invalid("query", name[:serviceBytesMax]+"...",
			fmt.Sprintf("length must be less than %d", serviceBytesMax))
	}
	for _, c := range []byte(name) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9',
			strings.IndexByte("-_.:@", c) >= 0:
		default:
			return invalid("query", name, "input contains unsupported characters")
		}
	}
	return nil
}

// checkPattern returns an error if a pattern is too long or not a regular expression. journalctl
// then interprets it as PCRE2.
func checkPattern(pattern string) error {
	if len(pattern) > patternBytesMax || strings.ContainsRune(pattern, 0) {
		return invalid("pattern", pattern[:min(len(pattern), patternBytesMax)],
			fmt.Sprintf("must have at most %d bytes, none of them zero", patternBytesMax))
	}
	if _, err := syntax.Parse(pattern, syntax.Perl); err != nil {
		return invalid("pattern", pattern, err.Error())
	}
	return nil
}

// arguments returns the arguments of journalctl. A client's text always follows the name of an
// option in the same argument, so that it cannot be taken for another option.
func (q *query) arguments(services []string) []string {
	args := []string{"--utc", "--no-pager", "--output=short-precise"}
	if q.since != nil { // in seconds, which do not depend on the time zone
		args = append(args, fmt.Sprintf("--since=@%d", q.since.Unix()))
	}
	if q.until != nil {
		args = append(args, fmt.Sprintf("--until=@%d", q.until.Unix()))
	}
	if q.tail != nil {
		args = append(args, fmt.Sprintf("--lines=%d", *q.tail))
	}
	for _, service := range services {
		args = append(args, "--unit="+service)
	}
	if q.pattern != "" {
		args = append(args, "--grep="+q.pattern)
	}
	if q.boot != nil {
		args = append(args, fmt.Sprintf("--boot=%d", *q.boot))
	}
	return args
}

// journalUnits returns the units with entries in the journal; none without a journal. journalctl
// reports no error for an unknown unit.
func (s *Server) journalUnits(ctx context.Context) map[string]bool {
	names := &truncatingBuffer{max: unitsBytesMax}
	cmd := exec.CommandContext(ctx, s.journalctl, "--no-pager", "--field=_SYSTEMD_UNIT")
	cmd.Stdout = names
	if cmd.Run() != nil {
		return nil
	}
	units := map[string]bool{}
	for name := range strings.FieldsSeq(names.String()) {
		units[name] = true
	}
	return units
}

// truncatingBuffer keeps the first max bytes that are written to it.
type truncatingBuffer struct {
	bytes.Buffer
	max int
}

// Write implements io.Writer.
func (l *truncatingBuffer) Write(p []byte) (int, error) {
	l.Buffer.Write(p[:min(len(p), max(0, l.max-l.Len()))])
	return len(p), nil
}

// copyServiceFile writes the log file of a service: SERVICE, SERVICE.log or SERVICE/SERVICE.log.
func copyServiceFile(ctx context.Context, out io.Writer, t logTree, service string) {
	for _, name := range []string{service, service + ".log", service + "/" + service + ".log"} {
		found, err := copyOneFile(ctx, out, t, name)
		switch {
		case err != nil && ctx.Err() == nil:
			fmt.Fprintf(out, "\nerror getting log for %s: %v\n", service, err)
			return
		case err != nil || found:
			return
		}
	}
	fmt.Fprintf(out, "\nlog not found for %s\n", service)
}

func copyOneFile(ctx context.Context, out io.Writer, t logTree, name string) (bool, error) {
	f, err := t.Open(name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrInvalid) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.IsDir() {
		return false, err
	}
	_, err = io.Copy(out, contextReader{ctx, f})
	return true, err
}

// contextReader fails once its context is done.
type contextReader struct {
	ctx context.Context
	io.Reader
}

// Read implements io.Reader.
func (r contextReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}
