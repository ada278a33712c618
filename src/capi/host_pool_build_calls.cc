// Calls of the ABI: building, attaching and giving back groups of host pools.
#include <cstring>
#include <stop_token>

#include "capi/host_pool_handles.h"
#include "capi/options.h"

using namespace tiercel;        // NOLINT(google-build-using-namespace): the ABI's functions stand outside
using namespace tiercel::capi;  // NOLINT(google-build-using-namespace)

namespace tiercel::capi {

Pools::Pools(HostPoolGroup group, GroupSlots slots, bool own_slots, unsigned copy_threads,
             std::unique_ptr<CudaDevice> device)
    : device_(std::move(device)),
      group_(std::move(group)),
      copy_threads_(copy_threads),
      own_slots_(own_slots),
      slots_(std::move(slots)) {
  for (const HostPool& pool : plan().pools) layouts_.push_back(layout_text(pool.layout.layout));
}

Answer Pools::check_pool(std::string_view name, std::uint32_t pool) const {
  if (pool < plan().pools.size()) return {};
  return invalid(fmt::format("{}: pool {}: there are {}, numbered from 0", name, pool, plan().pools.size()));
}

Executor& Pools::executor() {
  const MutexLock lock(mutex_);
  if (!executor_) executor_.emplace(copy_threads_);
  return *executor_;
}

}  // namespace tiercel::capi

namespace {

constexpr std::uint64_t kBuffersMax = std::uint64_t{1} << 20;

Answer form_of(const tiercel_spec* spec, StorageForm& form) {
  TIERCEL_RETURN_UNLESS_OK(check(spec));
  auto made = make_storage_form(spec->spec);
  if (!made) return made.error();
  form = std::move(*made);
  return {};
}

// Takes the group and what pinned it, both or neither: the caller's order of destruction holds until then.
Answer give(HostPoolGroup&& group, bool own_slots, unsigned copy_threads,
            std::unique_ptr<CudaDevice>&& device, tiercel_host_pools** out) {
  auto slots = GroupSlots::make(group.plan());
  if (!slots) return slots.error();
  auto handle = std::make_unique<tiercel_host_pools>();
  handle->pools = std::make_shared<Pools>(std::move(group), std::move(*slots), own_slots, copy_threads,
                                          std::move(device));
  *out = handle.release();
  return {};
}

// While memory is claimed the caller is asked now and then whether to go on. Lives: `stop` until the group is
// sealed.
HostPoolOptions group_options(const PoolsOptions& options, std::stop_source& stop) {
  HostPoolOptions group = options.group;
  if (options.progress != nullptr) {
    group.touch.stop = stop.get_token();
    group.touch.progress = [&stop, call = options.progress, context = options.progress_context](
                               std::uint64_t done, std::uint64_t total) {
      if (call(context, done, total) != 0) stop.request_stop();
    };
  }
  return group;
}

// The device that pins the group's memory or has it, where the options ask for one. Errors: why there is
// none, and what to take instead.
Answer open_device(const PoolsOptions& options, HostPoolOptions& group, std::unique_ptr<CudaDevice>& device) {
  const bool pinned = options.group.plan.kind == MemoryKind::kPinned;
  if (!pinned && !options.on_device) return {};
  auto opened = open_cuda_device(options.device);
  if (!opened && !pinned)
    return Status{opened.error().code, "host_pools: on_device: " + opened.error().message};
  if (!opened)
    return Status{opened.error().code,
                  fmt::format("host_pools: memory pinned: {}; take \"anonymous\", \"hugepage\" or \"shared\"",
                              opened.error().message)};
  device = std::move(*opened);
  if (pinned) group.registrar = device->host_registrar();
  if (options.on_device)
    for (const MutableByteView allocation : group.plan.allocations)
      device->add_range(reinterpret_cast<std::uintptr_t>(allocation.data()),
                        allocation.size());  // NOLINT: a device's
  return {};
}

StackOptions stack_options(const PoolsOptions& options) {
  return {options.layout, {}, options.stage, options.full_pages_per_resume_point, options.device_pages};
}

}  // namespace

tiercel_status tiercel_host_pools_open(const tiercel_spec* spec, const tiercel_host_pools_options* options,
                                       tiercel_host_pools** pools, tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check_out("host_pools_open: pools", pools));
    StorageForm form;
    TIERCEL_RETURN_UNLESS_OK(form_of(spec, form));
    PoolsOptions given;
    TIERCEL_RETURN_UNLESS_OK(read_pools_options(options, given));
    std::stop_source stop;
    HostPoolOptions made_with = group_options(given, stop);
    std::unique_ptr<CudaDevice> device;
    TIERCEL_RETURN_UNLESS_OK(open_device(given, made_with, device));
    auto group = HostPoolGroup::build(form, stack_options(given), std::move(made_with));
    if (!group) return group.error();
    return give(std::move(*group), true, given.copy_threads, std::move(device), pools);
  });
}

tiercel_status tiercel_host_pools_builder_create(const tiercel_spec* spec,
                                                 const tiercel_host_pools_options* options,
                                                 tiercel_host_pools_builder** builder, tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check_out("host_pools_builder_create: builder", builder));
    auto handle = std::make_unique<tiercel_host_pools_builder>();
    TIERCEL_RETURN_UNLESS_OK(form_of(spec, handle->form));
    TIERCEL_RETURN_UNLESS_OK(read_pools_options(options, handle->options));
    if (!handle->options.device_pages.empty())
      return invalid("host_pools_builder_create: device_pools: say them with each pool that is added");
    *builder = handle.release();
    return {};
  });
}

namespace {

Answer read_place(const tiercel_buffer_place& given, std::uint64_t number, BufferSource& out) {
  TIERCEL_RETURN_UNLESS_OK(
      check_reserved(fmt::format("host_pools_builder_add: buffer {}", number), given.reserved));
  switch (given.source) {
    case TIERCEL_BUFFER_OWN:
      out = OwnBuffer{};
      return {};
    case TIERCEL_BUFFER_SAME_AS: {
      SameBufferAs same;
      TIERCEL_RETURN_UNLESS_OK(
          read_text(fmt::format("host_pools_builder_add: buffer {}: pool", number), given.pool, same.pool));
      same.buffer = given.buffer;
      same.offset = given.offset;
      out = std::move(same);
      return {};
    }
    case TIERCEL_BUFFER_AT:
      out = BufferAt{{static_cast<std::byte*>(given.data), static_cast<std::size_t>(given.size)}};
      if (given.data == nullptr && given.size != 0)
        return invalid(
            fmt::format("host_pools_builder_add: buffer {}: NULL with {} bytes", number, given.size));
      return {};
    default:
      return check_enum(fmt::format("host_pools_builder_add: buffer {}: source", number), given.source,
                        TIERCEL_BUFFER_OWN, TIERCEL_BUFFER_AT);
  }
}

Answer read_shape(const tiercel_host_pools_builder& builder, const tiercel_host_pool_options& given,
                  HostPoolRequest& request) {
  const ModelSpec& spec = builder.form.spec;
  if (given.group == TIERCEL_NO_GROUP) {
    request.shape.name = "anchor";
    request.shape.page_tokens = spec.page_tokens;
  } else if (given.group < spec.groups.size()) {
    request = request_of(builder.form, given.group, builder.options.stage,
                         builder.options.full_pages_per_resume_point);
  } else {
    return invalid(fmt::format("host_pools_builder_add: group {}: the spec has {}, numbered from 0",
                               given.group, spec.groups.size()));
  }
  if (given.name != nullptr)
    TIERCEL_RETURN_UNLESS_OK(read_text("host_pools_builder_add: name", given.name, request.shape.name));
  return {};
}

Answer read_request(const tiercel_host_pools_builder& builder, const tiercel_host_pool_options& given,
                    HostPoolRequest& request) {
  TIERCEL_RETURN_UNLESS_OK(read_shape(builder, given, request));
  request.layout = builder.options.layout;
  if (given.layout != nullptr) {
    std::string text;
    TIERCEL_RETURN_UNLESS_OK(read_text("host_pools_builder_add: layout", given.layout, text));
    auto layout = layout_from_text(text);
    if (!layout) return layout.error();
    request.layout = std::move(*layout);
  }
  if (given.slots_of != nullptr)
    TIERCEL_RETURN_UNLESS_OK(read_text("host_pools_builder_add: slots_of", given.slots_of, request.slots_of));
  if (given.pages_per_resume_point != 0) request.pages_per_resume_point = given.pages_per_resume_point;
  request.device_pages = given.device_pages;
  std::span<const tiercel_buffer_place> places;
  TIERCEL_RETURN_UNLESS_OK(
      read_list("host_pools_builder_add: buffers", given.buffers, given.buffer_count, places, kBuffersMax));
  for (std::size_t i = 0; i < places.size(); ++i)
    TIERCEL_RETURN_UNLESS_OK(read_place(places[i], i, request.buffers.emplace_back()));
  return {};
}

Answer with_all(HostPoolGroupBuilder& builder, const std::vector<HostPoolRequest>& requests) {
  for (const HostPoolRequest& request : requests)
    if (Status status = builder.add_pool(request); !status.ok()) return status;
  return {};
}

}  // namespace

tiercel_status tiercel_host_pools_builder_add(tiercel_host_pools_builder* builder,
                                              const tiercel_host_pool_options* options, uint32_t* pool,
                                              tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(builder));
    if (builder->sealed)
      return {TIERCEL_FAILED_PRECONDITION,
              "host_pools_builder_add: the group is sealed: sizes and sharing follow from all of its pools; "
              "begin "
              "another"};
    tiercel_host_pool_options given{};
    TIERCEL_RETURN_UNLESS_OK(read_options("host_pools_builder_add", options, given));
    TIERCEL_RETURN_UNLESS_OK(check_reserved("host_pools_builder_add", given.reserved));
    HostPoolRequest request;
    TIERCEL_RETURN_UNLESS_OK(read_request(*builder, given, request));
    PoolsOptions changed = builder->options;
    if (given.pages != 0) {
      auto* pages = std::get_if<PagesCapacity>(&changed.group.plan.capacity);
      if (pages == nullptr)
        return invalid("host_pools_builder_add: pages: the group's capacity is not said in pages");
      if (!request.slots_of.empty())
        return invalid(
            "host_pools_builder_add: pages: a pool that uses the slots of another has as many as it");
      pages->pools.emplace_back(request.shape.name, given.pages);
    }
    std::vector<HostPoolRequest> requests = builder->requests;
    requests.push_back(std::move(request));
    std::stop_source stop;
    HostPoolGroupBuilder tried = HostPoolGroup::begin(group_options(changed, stop));
    TIERCEL_RETURN_UNLESS_OK(with_all(tried, requests));
    builder->requests = std::move(requests);
    builder->options = std::move(changed);
    if (pool != nullptr) *pool = static_cast<std::uint32_t>(builder->requests.size() - 1);
    return {};
  });
}

tiercel_status tiercel_host_pools_builder_seal(tiercel_host_pools_builder* builder,
                                               tiercel_host_pools** pools, tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(builder));
    TIERCEL_RETURN_UNLESS_OK(check_out("host_pools_builder_seal: pools", pools));
    if (builder->sealed)
      return {TIERCEL_FAILED_PRECONDITION,
              "host_pools_builder_seal: the group is sealed already; begin another"};
    std::stop_source stop;
    HostPoolOptions made_with = group_options(builder->options, stop);
    std::unique_ptr<CudaDevice> device;
    TIERCEL_RETURN_UNLESS_OK(open_device(builder->options, made_with, device));
    HostPoolGroupBuilder steps = HostPoolGroup::begin(std::move(made_with));
    TIERCEL_RETURN_UNLESS_OK(with_all(steps, builder->requests));
    auto group = steps.seal();
    if (!group) return group.error();
    TIERCEL_RETURN_UNLESS_OK(
        give(std::move(*group), true, builder->options.copy_threads, std::move(device), pools));
    builder->sealed = true;
    return {};
  });
}

void tiercel_host_pools_builder_release(tiercel_host_pools_builder* builder) { free_handle(builder); }

tiercel_status tiercel_host_pools_attach(const tiercel_spec* spec, const tiercel_host_pools_options* options,
                                         int fd, const uint8_t* fingerprint, tiercel_host_pools** pools,
                                         tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check_out("host_pools_attach: pools", pools));
    if (fingerprint == nullptr)
      return invalid("host_pools_attach: fingerprint is NULL; hand over the owner's 32 bytes with its fd");
    StorageForm form;
    TIERCEL_RETURN_UNLESS_OK(form_of(spec, form));
    PoolsOptions given;
    TIERCEL_RETURN_UNLESS_OK(read_pools_options(options, given));
    const auto requests = stack_of(form, stack_options(given));
    if (!requests) return requests.error();
    auto plan = plan_host_pools(*requests, given.group.plan);
    if (!plan) return plan.error();
    const Digest own = plan_fingerprint(*plan);
    if (std::memcmp(own.data(), fingerprint, own.size()) != 0)
      return invalid(
          "host_pools_attach: spec and options give other pools than the owner's: its fingerprint is "
          "another; take "
          "the spec, layout, capacity and layers that the owner had");
    auto group = HostPoolGroup::attach(std::move(*plan), fd, MappingAccess::kReadWrite);
    if (!group) return group.error();
    return give(std::move(*group), false, given.copy_threads, nullptr, pools);
  });
}

void tiercel_host_pools_release(tiercel_host_pools* pools) { free_handle(pools); }
