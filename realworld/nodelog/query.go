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

// What a query may ask for.
const (
	servicesMax     = 4
	serviceBytesMax = 256
	tailLinesMax    = 100_000
	patternBytesMax = 1024
	unitsBytesMax   = 1 << 20 // of the names of all units in the journal
)

// query is what a client wants to know: one file, or the logs of services.
type query struct {
	services []string
	files    []string
	since    *time.Time
	until    *time.Time
	tail     *int
	boot     *int
	pattern  string
}

// parseQuery reads the parameters of a request. It is nil if there are none.
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
	if err := joined(errs); err != nil {
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

// joined is all of the errors in one line.
func joined(errs []error) error {
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

// check says what is wrong with a query that could be read.
func (q *query) check(t tree) error {
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
	return joined(append(errs, checkPattern(q.pattern)))
}

func (q *query) checkNames(t tree) error {
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
		f, err := t.Open(slashed(q.files[0]))
		if err != nil {
			return invalid("query", q.files[0], err.Error())
		}
		return f.Close()
	}
	return nil
}

// slashed is a file's name below the directory of logs, as the client may write it: with a slash
// before it, or with those of Windows.
func slashed(name string) string {
	return strings.Trim(strings.ReplaceAll(name, `\`, "/"), "/")
}

// checkService sees to it that a name can be part of an argument and of a path.
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

// checkPattern refuses what is no regular expression. It is journalctl that reads it in the end,
// by the rules of PCRE2.
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

// arguments are those of journalctl. What a client gives is always behind the name of an option,
// in one argument with it, so that it cannot be another option.
func (q *query) arguments(services []string) []string {
	args := []string{"--utc", "--no-pager", "--output=short-precise"}
	if q.since != nil { // seconds, which mean the same in every time zone
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

// units are those that the journal knows; none where there is no journal. journalctl has no error
// for a unit that it does not know.
func (s *Server) units(ctx context.Context) map[string]bool {
	names := &limited{max: unitsBytesMax}
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

// limited keeps the beginning of what is written.
type limited struct {
	bytes.Buffer
	max int
}

// Write implements io.Writer.
func (l *limited) Write(p []byte) (int, error) {
	l.Buffer.Write(p[:min(len(p), max(0, l.max-l.Len()))])
	return len(p), nil
}

// copyFile writes the file in which a service logs: SERVICE, SERVICE.log or SERVICE/SERVICE.log.
func copyFile(ctx context.Context, out io.Writer, t tree, service string) {
	for _, name := range []string{service, service + ".log", service + "/" + service + ".log"} {
		found, err := copyOne(ctx, out, t, name)
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

func copyOne(ctx context.Context, out io.Writer, t tree, name string) (bool, error) {
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
	_, err = io.Copy(out, reader{ctx, f})
	return true, err
}

// reader reads until a context is done.
type reader struct {
	ctx context.Context
	io.Reader
}

// Read implements io.Reader.
func (r reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}
