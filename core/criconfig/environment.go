package criconfig

import (
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/budget"
)

// The environment variables of a container. Their values come from the spec, from the downward API
// (downward.go), from ConfigMaps and Secrets (environment_objects.go), from files in volumes
// (environment_files.go), and from services (environment_services.go).

// Environment returns the variables of a container: those of whole ConfigMaps and Secrets, then the
// container's own, then those of services. References to earlier variables and to those of services
// are expanded in values that the spec gives, and not in values from a source. It fails if a
// variable has no value, and if the variables exceed a bound (variables.go). The result for the
// container that was asked for last is kept, since an attempt to create a container asks up to
// three times; callers do not change it.
func (p *Pod) Environment(container *v1.Container) (*Variables, error) {
	variables, err := p.ownEnvironment(container)
	if err != nil {
		return nil, err
	}
	if e := &p.environment; !e.hasServices {
		e.hasServices = true
		variables.addServices()
	}
	return variables, nil
}

// ownEnvironment is Environment, but the list of the result may lack the variables of services, and
// with an error the result has the variables that were built.
func (p *Pod) ownEnvironment(container *v1.Container) (*Variables, error) {
	if e := &p.environment; e.of != container {
		*e = environment{of: container}
		e.variables, e.err = p.newEnvironment(container)
	}
	return p.environment.variables, p.environment.err
}

// environment is the result of Environment.
type environment struct {
	of          *v1.Container
	variables   *Variables
	hasServices bool // the list has the variables of services
	err         error
}

func (p *Pod) newEnvironment(container *v1.Container) (*Variables, error) {
	services, err := p.serviceVariables()
	variables := &Variables{services: services, bound: budget.OwnVariables,
		expandedMax: p.expandedMax}
	if err != nil {
		return variables, err
	}
	if len(services.List) == 0 && !p.servicesListed() {
		return variables, errors.New(
			"services have not yet been read at least once, cannot construct envvars")
	}
	if !p.Node.NoEnvFiles {
		if err := checkEnvFiles(container); err != nil {
			return variables, err
		}
	}
	for i := range container.EnvFrom {
		if err := p.addEnvFrom(variables, &container.EnvFrom[i]); err != nil {
			return variables, err
		}
	}
	for i := range container.Env {
		if err := p.addEnv(variables, &container.Env[i], container); err != nil {
			return variables, err
		}
	}
	return variables, variables.countServices()
}

// addEnv adds a variable of the spec.
func (p *Pod) addEnv(variables *Variables, v *v1.EnvVar, container *v1.Container) error {
	if v.ValueFrom != nil {
		value, found, err := p.valueFrom(v, container)
		if err != nil || !found {
			return err
		}
		return variables.add(v.Name, value)
	}
	value, fits := expand(v.Value, budget.VariableBytesMax, variables)
	if !fits {
		variables.expanded += budget.VariableBytesMax // as much was built at most
		return tooLong("environment variable " + v.Name)
	}
	return variables.add(v.Name, []byte(value))
}

// valueFrom returns the value of a variable that has a source. An optional source may not be found.
func (p *Pod) valueFrom(v *v1.EnvVar, container *v1.Container) (value []byte, found bool,
	err error) {
	var text string
	switch from := v.ValueFrom; {
	case from.ConfigMapKeyRef != nil, from.SecretKeyRef != nil:
		return p.keyValue(from)
	case from.FileKeyRef != nil && p.Node.NoEnvFiles:
		return nil, true, nil // empty, as in the kubelet
	case from.FileKeyRef != nil:
		return p.fileKeyValue(v, container.Name)
	case from.FieldRef != nil:
		text, err = p.fieldValue(from.FieldRef.FieldPath)
	case from.ResourceFieldRef != nil:
		text, err = p.resourceFieldValue(from.ResourceFieldRef, container)
	default:
		err = errors.New("its source is not supported")
	}
	if err != nil {
		return nil, false, fmt.Errorf("environment variable %s: %w", v.Name, err)
	}
	return []byte(text), true, nil
}
